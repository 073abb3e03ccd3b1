from collections import deque
from collections.abc import Collection
from typing import Any, Final, Protocol, Self, final

from typing_extensions import disjoint_base

from rmq._fastpath.client.messages import ReceivedMessage

MAX_SPAN: Final = 2_000
"""Offsets between the first message that is not acknowledged and the last fetched one:
all would come again after a crash. Java's `consumeConcurrentlyMaxSpan`."""

class _Message(Protocol):
    """What is looked at of a message."""

    @property
    def queue_offset(self) -> int:
        """Its place in the queue."""

    @property
    def size(self) -> int:
        """Its bytes."""

@final
class ProcessQueue:
    """One queue; offsets come in ascending order. Known in Java by the same name."""

    def __init__(self, next_offset: int) -> None: ...
    @property
    def next_offset(self) -> int:
        """Where the next pull begins."""

    @property
    def count(self) -> int:
        """Messages that are not acknowledged."""

    @property
    def bytes(self) -> int:
        """Their bytes."""

    def add(self, messages: Collection[_Message], next_offset: int) -> None:
        """Note fetched messages, and where the next pull begins."""

    def ack(self, message: _Message) -> bool:
        """Note that a message is consumed; False if it is not one that waits."""

    @property
    def committable(self) -> int:
        """The offset where the group would continue."""

    @property
    def last_offset(self) -> int:
        """The highest offset that waits; only if some do."""

    @property
    def is_far_ahead(self) -> bool:
        """Whether one message waits so long that no more should be fetched."""

    def reset(self, offset: int) -> None:
        """Forget all, and go on at an offset."""

@disjoint_base
class FetchBuffer:
    """What is fetched and not acknowledged, of all queues: the base of `Puller`.

    `ready` are messages that nobody has yet, `blocked` queues that wait for room.
    """

    count: int
    bytes: int
    ready: deque[ReceivedMessage]
    blocked: set[Any]

@disjoint_base
class Lease:
    """A queue as the lease of its messages: the base of `AssignedQueue`."""

    is_revoked: bool
    buffer: FetchBuffer
    state: ProcessQueue

    def ack(self, message: ReceivedMessage) -> bool:
        """Mark a message consumed; False if the queue is no longer ours."""

class _Consumer(Protocol):
    async def next_message(self) -> ReceivedMessage | None: ...
    def ack_last(self) -> None: ...

@final
class MessageIterator:
    """Hands messages out, one after another; the one before counts as consumed.

    `last` is what the program has: a message, a list, or None. While `is_plain` is set
    a message that is ready comes at once; else the consumer finds the next one.
    """

    is_plain: bool
    last: ReceivedMessage | list[ReceivedMessage] | None

    def __init__(self, consumer: _Consumer, fetched: FetchBuffer) -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> ReceivedMessage:
        """Return the next message."""
