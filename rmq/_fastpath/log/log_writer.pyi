from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.log.flush_times import FlushTimes
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing
from rmq._fastpath.log.watermark import Watermark

@final
class LogWriter:
    """Writes the files of a log that has a ring."""

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
    ) -> Self:
        """`find_file` returns the file of an offset.

        `on_buffered` is called when writes become buffered.

        If writes are durable, the writer advances `durable` and adds the duration of
        each to `times`. Requests to `durable` wake the thread.
        """

    def wake_when_written(self, descriptor: int) -> None:
        """Signal this eventfd when waiting senders may retry; -1 stops that."""

    def run(self) -> None:
        """Write until `durable.end_wait`; OSError if the log cannot be written."""

    def write_out(self) -> int:
        """Write all that was appended before the call and return the written offset."""

    def open_file(self, offset: int) -> None:
        """Write to the file of `offset` from now on."""

    def close_file(self) -> None:
        """Release the file."""

    def disable_direct(self) -> None:
        """Write through the page cache from now on."""
