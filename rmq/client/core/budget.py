"""Budget: how many messages and bytes may be under way; who waits gets room in turn.

Invariants: what is taken never exceeds the limits, except that a message larger than
all bytes passes alone; nobody overtakes a message that waits.
"""

from collections import deque
from typing import Generic, Protocol, TypeVar


class Waiting(Protocol):
    """Who waits for room."""

    def done(self) -> bool:
        """Whether it has been given up."""

    def set_result(self, value: None, /) -> None:
        """Let it go on."""


W = TypeVar("W", bound=Waiting)


class Budget(Generic[W]):
    """Counts; `take` or `wait` before, `give` after."""

    def __init__(self, max_count: int, max_bytes: int) -> None:
        self.count = 0
        self.bytes = 0
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._waiting: deque[tuple[W, int, int]] = deque()

    def take(self, size: int, count: int = 1) -> bool:
        """Take room if it is there, and if nobody waits for it."""
        total, total_bytes = self.count + count, self.bytes + size
        is_full = total > self._max_count or total_bytes > self._max_bytes
        if self._waiting or (is_full and self.count):
            return False
        self.count, self.bytes = total, total_bytes
        return True

    def wait(self, waiter: W, size: int, count: int = 1) -> None:
        """Have room taken for the waiter when it is its turn."""
        self._waiting.append((waiter, size, count))

    def give(self, size: int, count: int = 1) -> None:
        """Give room back; those that wait get it."""
        self.count -= count
        self.bytes -= size
        assert self.count >= 0 <= self.bytes
        if self._waiting:
            self.serve()

    def serve(self) -> None:
        """Let go on who has room now; also after a waiter was given up."""
        waiting = self._waiting
        while waiting:
            waiter, size, count = waiting[0]
            if not waiter.done():
                if not self._has_room(size, count):
                    return
                self.count += count
                self.bytes += size
                waiter.set_result(None)
            waiting.popleft()

    def _has_room(self, size: int, count: int) -> bool:
        if self.count == 0:
            return True
        return (
            self.count + count <= self._max_count
            and self.bytes + size <= self._max_bytes
        )
