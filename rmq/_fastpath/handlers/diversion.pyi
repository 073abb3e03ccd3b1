from collections.abc import Callable
from typing import Self, final

from typing_extensions import disjoint_base

from rmq._fastpath.log.queue_tail import QueueTail

ADDRESS_NAMES: tuple[str, ...]

@disjoint_base
class Diversion:
    accepted_flags: int
    has_handle: bool

@final
class DelayedSends(Diversion):
    def __new__(cls, delays_ms: tuple[int, ...], expected: set[int]) -> Self: ...
    def register(self, level: int, queue: QueueTail) -> None: ...
    def has_level(self, level: int) -> bool: ...

@final
class HalfSends(Diversion):
    queue: QueueTail | None
    def __init__(
        self, *, may_open: Callable[[], bool], on_open: Callable[[str], object]
    ) -> None: ...
    def register(self, queue: QueueTail) -> None: ...
