from collections.abc import Callable, Iterable
from typing import final

from typing_extensions import disjoint_base

from rmq._fastpath.handlers.diversion import DelayedSends
from rmq._fastpath.handlers.send_table import SendTable
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.native import NativeHandler

NAMES: tuple[str, ...]
VARYING: tuple[str, ...]
REASONS: tuple[str, ...]

@disjoint_base
class BackGroup: ...

@final
class SendBackPath(NativeHandler):
    def __init__(
        self,
        table: SendTable,
        reader: LogReader,
        visible: Watermark | None,
        delayed: DelayedSends | None,
        *,
        declined: Iterable[str],
        choose_queue: Callable[[int], int],
        on_stored: Callable[[list[tuple[str, str, bool]]], object],
        version: int,
    ) -> None: ...
    def register_group(
        self,
        name: str,
        retry_topic: str,
        *,
        queue_count: int,
        limit: int,
        dead_letters: QueueTail | None,
    ) -> None: ...
    def register_source(self, queue: QueueTail) -> None: ...
    def unregister_group(self, name: str) -> None: ...
    def unregister_all(self) -> None: ...
    def __len__(self) -> int: ...
