from typing import final

from rmq._fastpath.native import NativeHandler
from rmq._fastpath.pull_table import PullTable

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class PullPath(NativeHandler):
    """Serves one of the pull codes."""

    def __init__(self, table: PullTable) -> None: ...
    def end_all(self, now_ms: int) -> None:
        """Answer every pull that waits and keep no others, because the broker stops."""
