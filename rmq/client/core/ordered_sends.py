"""OrderedSendQueue: sends with a key to one queue, one request at a time.

Java's broker gives the requests of one connection to several threads, so the second of
two may be stored first. What comes while a request is under way waits, and leaves after
its answer as one batch. When one fails for good, those of the same key after it fail
with it: to store them would leave a gap in the order.
"""

from collections import deque
from typing import Generic, NamedTuple, TypeVar

from rmq.client.core.batches import ITEM_SIZE, BatchLimits, fits

T = TypeVar("T")


class KeyedMessage(NamedTuple, Generic[T]):
    """A message that waits: `alone` ones join no batch."""

    key: str
    item: T
    size: int
    alone: bool


class OrderedSendQueue(Generic[T]):
    """The messages for one queue; `next` is what may be sent now."""

    def __init__(self, limits: BatchLimits) -> None:
        self._limits = limits
        self._waiting: deque[KeyedMessage[T]] = deque()
        self._under_way: list[KeyedMessage[T]] = []

    def add(self, message: KeyedMessage[T]) -> None:
        """Add a message at the end."""
        self._waiting.append(message)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._waiting and not self._under_way

    def next(self) -> list[KeyedMessage[T]]:
        """Return the messages of the next request; none while one is under way."""
        if self._under_way or not self._waiting:
            return []
        first = self._waiting.popleft()
        batch, total = [first], first.size + ITEM_SIZE
        while self._waiting and not first.alone:
            each = self._waiting[0]
            if each.alone or not fits(len(batch), total, each.size, self._limits):
                break
            batch.append(self._waiting.popleft())
            total += each.size + ITEM_SIZE
        self._under_way = batch
        return batch

    def succeeded(self) -> None:
        """Note that the request under way is stored."""
        self._under_way = []

    def failed(self) -> list[T]:
        """Note that it failed for good; return the later ones that fail with it."""
        keys = {each.key for each in self._under_way}
        self._under_way = []
        lost = [each.item for each in self._waiting if each.key in keys]
        self._waiting = deque(each for each in self._waiting if each.key not in keys)
        return lost

    def withdraw(self, item: T) -> bool:
        """Take a message out that waits; False if it has left."""
        for each in self._waiting:
            if each.item is item:
                self._waiting.remove(each)
                return True
        return False
