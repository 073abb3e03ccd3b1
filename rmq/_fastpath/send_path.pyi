from typing import final

from rmq._fastpath.native import NativeHandler
from rmq._fastpath.send_table import SendTable

LONG_NAMES: tuple[str, ...]
SHORT_NAMES: tuple[str, ...]
VARYING: tuple[int, ...]
REASONS: tuple[str, ...]

@final
class SendPath(NativeHandler):
    """Serves one of the send codes."""

    def __init__(self, table: SendTable, *, has_short_names: bool) -> None: ...
