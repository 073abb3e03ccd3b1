from typing import final

from rmq._fastpath.handlers.held_pulls import HeldPulls
from rmq._fastpath.handlers.pop_table import PopTable, PopView
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class NotificationPath(NativeHandler):
    def __init__(self, table: PopTable) -> None: ...
    held: HeldPulls
    def count_waiting(self, view: PopView) -> int: ...
    def report_arrival(self, view: PopView) -> None: ...
    def wake(self, view: PopView) -> None: ...
    def end_all(self, now_ms: int) -> None: ...
