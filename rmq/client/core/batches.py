"""Batches: which messages leave together in one request 320.

A batch has one topic, one queue and one `wait_stored`; a broker stores it whole or not
at all. Time is a parameter.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, Generic, NamedTuple, TypeVar

ITEM_SIZE: Final = 22
"""Bytes of an item besides body and properties."""

MAX_BATCH_BYTES: Final = 4 << 20
"""The brokers' default `maxMessageSize`."""


class Sized(NamedTuple):
    """The limits of a batch."""

    max_count: int
    max_bytes: int


T = TypeVar("T")


def split(
    items: Iterable[tuple[T, int]], limits: Sized
) -> Iterator[tuple[list[T], int]]:
    """Cut messages, given with their sizes, into full batches and their sizes."""
    max_count, max_bytes = limits
    batch: list[T] = []
    total = 0
    for item, size in items:
        total += size + ITEM_SIZE
        if batch and (len(batch) == max_count or total > max_bytes):
            yield batch, total - size - ITEM_SIZE
            batch, total = [], size + ITEM_SIZE
        batch.append(item)
    if batch:
        yield batch, total


def fits(count: int, total: int, size: int, limits: Sized) -> bool:
    """Whether a message may join a batch of this count and size."""
    return count < limits.max_count and total + size + ITEM_SIZE <= limits.max_bytes


class Accumulator(Generic[T]):
    """One batch that fills, and the moment at which it leaves at the latest."""

    def __init__(self, limits: Sized, linger_ms: float) -> None:
        self.leaves_at_ms: float | None = None
        self._max_count, self._max_bytes = limits
        self._linger_ms = linger_ms
        self._items: list[T] = []
        self._bytes = 0

    def add(self, item: T, size: int, now_ms: Callable[[], float]) -> Sequence[list[T]]:
        """Add a message; return the batches that leave now."""
        items, total = self._items, self._bytes + size + ITEM_SIZE
        if (
            items
            and total + ITEM_SIZE <= self._max_bytes
            and len(items) + 1 < self._max_count
        ):
            items.append(item)
            self._bytes = total
            return ()
        leaving = []
        if items and total > self._max_bytes:
            leaving.append(self.take())
        if not self._items:
            self.leaves_at_ms = now_ms() + self._linger_ms
        self._items.append(item)
        self._bytes += size + ITEM_SIZE
        is_full = self._bytes + ITEM_SIZE > self._max_bytes
        if is_full or len(self._items) == self._max_count:
            leaving.append(self.take())
        return leaving

    def withdraw(self, item: T, size: int) -> bool:
        """Take a message out again; False if it has left."""
        if item not in self._items:
            return False
        self._items.remove(item)
        self._bytes -= size + ITEM_SIZE
        if not self._items:
            self.leaves_at_ms = None
        return True

    def due(self, now_ms: float) -> list[T]:
        """Return the batch if its time has come."""
        if self.leaves_at_ms is None or now_ms < self.leaves_at_ms:
            return []
        return self.take()

    def take(self) -> list[T]:
        """Return what is there, as at a flush."""
        items, self._items = self._items, []
        self._bytes = 0
        self.leaves_at_ms = None
        return items
