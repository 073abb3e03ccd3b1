from typing import Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.extent import Extent

@final
class TailRing:
    path: str
    size: int
    margin: int
    begin: int
    def __new__(
        cls, path: str, generation: int, *, size: int = 0, begin: int = 0
    ) -> Self: ...
    appended_offset: int
    written_offset: int
    floor_offset: int
    free_size: int
    def add(self, data: Buffer) -> None: ...
    def mark_written(self, offset: int) -> None: ...
    def prepare_pages(self) -> None: ...
    def read_leftover(self, offset: int, limit: int) -> Extent | None: ...
    def read(self, offset: int, size: int) -> bytes: ...
