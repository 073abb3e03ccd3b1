from typing import Self, final

from rmq._fastpath.log.log_reader import LogReader

@final
class OnceTable:
    capacity: int
    count: int
    def __new__(cls, memory_bytes: int) -> Self: ...
    @property
    def oldest_ms(self) -> int: ...
    def find(self, topic: bytes, key: bytes, since_ms: int) -> int: ...
    def add(
        self, topic: bytes, key: bytes, physical_offset: int, store_ms: int
    ) -> None: ...
    def load(
        self,
        reader: LogReader,
        blocks: list[bytes],
        topics: set[bytes],
        since_ms: int,
    ) -> None: ...
