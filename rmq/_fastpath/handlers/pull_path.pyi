from typing import final

from rmq._fastpath.handlers.pull_table import PullTable, PullView
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class PullPath(NativeHandler):
    def __init__(self, table: PullTable) -> None: ...
    def hold_pull(
        self,
        view: PullView,
        token: int,
        frame: bytes,
        *,
        opaque: int,
        serialize_type: int,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        suspend_ms: int,
    ) -> bool: ...
    def end_all(self, now_ms: int) -> None: ...
