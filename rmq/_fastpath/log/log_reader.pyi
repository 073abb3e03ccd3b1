from collections.abc import Callable
from typing import Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail_ring import TailRing

@final
class LogReader:
    ring: TailRing | None
    on_bad_block: Callable[[int], object] | None
    def __new__(cls, files: list[MappedFile]) -> Self: ...
    def read(self, offset: int, size: int) -> bytes | None: ...
    def read_damaged(self, offset: int, size: int) -> bytes | None: ...
    def store_ms_at(self, offset: int) -> int: ...
    def search_time(
        self,
        queue: QueueTail,
        file: MappedFile | None,
        first: int,
        end: int,
        timestamp_ms: int,
        *,
        upper: bool,
    ) -> int: ...
    def read_record(self, offset: int) -> bytes | None: ...
    def find_missing(
        self, offset: int, size: int
    ) -> tuple[MappedFile, int, int] | None: ...
    def find_bad(self, offset: int, size: int) -> int: ...
    def find_wrong_entry(
        self,
        entries: Buffer,
        queue_id: int,
        first: int,
        runs: list[tuple[int, int]],
        min_physical_offset: int,
    ) -> int: ...
    def read_extent(
        self, offset: int, limit: int, *, is_shared: bool = False
    ) -> tuple[Extent, int] | None: ...
