"""OrderedSendQueue: sends with a key to one queue, one request at a time.

Java's broker gives the requests of one connection to several threads, so it may store
the second of two messages first. Messages that arrive while a request is in flight
wait, and leave after its answer as one batch. When a message fails, the later messages
of its key fail too: if they were stored, the order would have a gap.
"""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from rmq.client.core.batches import ITEM_SIZE, BatchLimits, fits

T = TypeVar("T")


class KeyedMessage(NamedTuple, Generic[T]):
    """A message that waits; a message with `alone` joins no batch."""

    key: str
    item: T
    size: int
    alone: bool


class OrderedSendQueue(Generic[T]):
    """The messages for one queue; `next` returns the messages that may be sent now."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._waiting: deque[KeyedMessage[T]] = deque()
        self._in_flight: list[KeyedMessage[T]] = []

    def add(self, message: KeyedMessage[T]) -> None:
        """Add a message at the end."""
        self._waiting.append(message)

    @property
    def is_empty(self) -> bool:
        """Whether no message waits, and none is in flight."""
        return not self._waiting and not self._in_flight

    def next(self) -> list[KeyedMessage[T]]:
        """Return the messages of the next request; an empty list while a request is in
        flight.
        """
        if self._in_flight or not self._waiting:
            return []
        first = self._waiting.popleft()
        batch, total = [first], first.size + ITEM_SIZE
        while self._waiting and not first.alone:
            each = self._waiting[0]
            if each.alone or not fits(len(batch), total, each.size, self._limits):
                break
            batch.append(self._waiting.popleft())
            total += each.size + ITEM_SIZE
        self._in_flight = batch
        return batch

    def record_success(self) -> None:
        """Record that the messages in flight are stored."""
        self._in_flight = []

    def record_failure(self) -> list[T]:
        """Record that all attempts failed; return the later messages that fail too."""
        keys = {each.key for each in self._in_flight}
        self._in_flight = []
        lost = [each.item for each in self._waiting if each.key in keys]
        self._waiting = deque(each for each in self._waiting if each.key not in keys)
        return lost

    def withdraw(self, item: T) -> bool:
        """Remove a message that waits; False if it was sent."""
        for each in self._waiting:
            if each.item is item:
                self._waiting.remove(each)
                return True
        return False
