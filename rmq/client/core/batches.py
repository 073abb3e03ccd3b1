"""Batches: the messages of one request 320.

A batch has one topic, one queue and one value of `wait_stored`. A broker stores all of
its messages or none. `Accumulator` of `rmq/_fastpath/client/sending.pyx` fills a batch.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple, TypeVar

ITEM_SIZE: Final = 22
"""Bytes of an item without body and properties."""

MAX_BATCH_BYTES: Final = 4 << 20
"""Maximum bytes of a batch: the default `maxMessageSize` of brokers."""


class BatchLimits(NamedTuple):
    """The limits of a batch."""

    max_count: int
    max_bytes: int


T = TypeVar("T")


def split(
    items: Iterable[tuple[T, int]], limits: BatchLimits
) -> Iterator[tuple[list[T], int]]:
    """Split messages into full batches; messages and batches come with their sizes."""
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


def fits(count: int, total: int, size: int, limits: BatchLimits) -> bool:
    """Whether a message may join a batch of this count and size."""
    return count < limits.max_count and total + size + ITEM_SIZE <= limits.max_bytes
