from typing import final

from rmq._fastpath.handlers.held_pulls import HeldPulls
from rmq._fastpath.handlers.pop_table import PopTable, PopView
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@final
class PopPath(NativeHandler):
    table: PopTable
    held: HeldPulls
    is_used: bool
    def __init__(self, table: PopTable) -> None: ...
    def count_waiting(self, view: PopView, queue_id: int) -> int: ...
    def report_arrival(self, view: PopView) -> None: ...
    def wake(self, view: PopView) -> None: ...
    def end_all(self, now_ms: int) -> None: ...
