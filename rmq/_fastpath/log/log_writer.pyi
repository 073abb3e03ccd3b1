from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.log.flush_times import FlushTimes
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing
from rmq._fastpath.log.watermark import Watermark

@final
class LogWriter:
    ring: TailRing
    is_durable: bool
    is_direct: bool
    interval_ns: int
    writes: int
    buffered_writes: int
    bytes_written: int
    def __new__(
        cls,
        ring: TailRing,
        durable: Watermark,
        times: FlushTimes,
        find_file: Callable[[int], MappedFile],
        on_buffered: Callable[[], object],
        *,
        is_durable: bool,
        is_direct: bool,
        interval_ms: int,
    ) -> Self: ...
    def wake_when_written(self, descriptor: int) -> None: ...
    def run(self) -> None: ...
    def write_out(self) -> int: ...
    def open_file(self, offset: int) -> None: ...
    def close_file(self) -> None: ...
    def disable_direct(self) -> None: ...
