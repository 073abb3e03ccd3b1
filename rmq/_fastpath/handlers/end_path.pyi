from collections.abc import Callable, Iterable
from typing import final

from typing_extensions import disjoint_base

from rmq._fastpath.handlers.diversion import HalfSends
from rmq._fastpath.handlers.send_table import SendTable
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@disjoint_base
class EndTarget: ...

@final
class EndPath(NativeHandler):
    table: SendTable | None
    def __init__(
        self,
        reader: LogReader,
        visible: Watermark | None,
        halves: HalfSends,
        *,
        declined: Iterable[str],
        on_begin: Callable[[int], bool],
        on_end: Callable[[list[int], list[tuple[str, int]], bool], object],
        version: int,
    ) -> None: ...
    def register(self, queue: QueueTail) -> None: ...
    def unregister_all(self) -> None: ...
    def __len__(self) -> int: ...
