"""ProcessQueue: what was fetched of a queue, and how far it is consumed.

The offset to commit is that of the first message that is not acknowledged; when there
is none, that after all that was fetched, so that filtered messages count as consumed.

Invariants: the offset to commit never goes back, except by `reset`; `count` and `bytes`
are those of the messages that are fetched and not acknowledged.
Known in Java as `ProcessQueue`.
"""

from collections import deque
from collections.abc import Iterable
from typing import Final, Protocol

MAX_SPAN: Final = 2_000
"""Offsets between the first message that is not acknowledged and the last fetched one:
all would come again after a crash. Java's `consumeConcurrentlyMaxSpan`."""


class Fetched(Protocol):
    """What is looked at of a message."""

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""

    @property
    def size(self) -> int:
        """Its bytes."""


class ProcessQueue:
    """One queue; offsets come in ascending order."""

    __slots__ = ("_acked", "_order", "bytes", "count", "next_offset")

    def __init__(self, next_offset: int) -> None:
        self.next_offset = next_offset
        self.count = 0
        self.bytes = 0
        self._order: deque[int] = deque()
        self._acked: set[int] = set()

    def add(self, messages: Iterable[Fetched], next_offset: int) -> None:
        """Note fetched messages, and where the next pull begins."""
        order = self._order
        for each in messages:
            order.append(each.queue_offset)
            self.count += 1
            self.bytes += each.size
        self.next_offset = max(self.next_offset, next_offset)

    def ack(self, message: Fetched) -> bool:
        """Note that a message is consumed; False if it is not one that waits."""
        offset, order = message.queue_offset, self._order
        if order and order[0] == offset:
            order.popleft()
            acked = self._acked
            while acked and order and order[0] in acked:
                acked.discard(order.popleft())
        elif not order or not order[0] < offset <= order[-1] or offset in self._acked:
            return False
        else:
            self._acked.add(offset)
        self.count -= 1
        self.bytes -= message.size
        return True

    @property
    def committable(self) -> int:
        """The offset where the group would continue."""
        return self._order[0] if self._order else self.next_offset

    @property
    def last_offset(self) -> int:
        """The highest offset that waits; only if some do."""
        return self._order[-1]

    @property
    def is_far_ahead(self) -> bool:
        """Whether one message waits so long that no more should be fetched."""
        return bool(self._order) and self._order[-1] - self._order[0] > MAX_SPAN

    def reset(self, offset: int) -> None:
        """Forget all, and go on at an offset."""
        self._order.clear()
        self._acked.clear()
        self.count = self.bytes = 0
        self.next_offset = offset
