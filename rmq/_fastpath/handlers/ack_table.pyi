from collections.abc import Callable
from typing import Self, final

from rmq._fastpath.log.queue_tail import TailSet

@final
class AckMarks:
    count: int
    open: int
    is_written: bool
    def __new__(
        cls, offsets: tuple[int, ...], bits: int, *, is_written: bool = False
    ) -> Self: ...
    offsets: tuple[int, ...]
    def open_offsets(self) -> list[int]: ...
    def clear(self, offset: int) -> bool: ...

@final
class AckTable:
    def __new__(
        cls,
        tails: TailSet,
        on_acks: Callable[[list[tuple[tuple[str, str, int, int, int], int]]], object],
        batch_limit: int = 2_048,
    ) -> Self: ...
    def __len__(self) -> int: ...
    def add(self, key: tuple[str, str, int, int, int], marks: AckMarks) -> None: ...
    def remove(self, marks: AckMarks) -> None: ...
    def unregister_all(self) -> None: ...
