from typing import final

from rmq._fastpath.handlers.pop_table import PopTable, PopView
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class NotificationPath(NativeHandler):
    def __init__(self, table: PopTable) -> None: ...
    def resume(
        self, view: PopView, token: int, *, opaque: int, queue_id: int
    ) -> bool: ...
