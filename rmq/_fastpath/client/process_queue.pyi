from collections import deque
from collections.abc import Collection
from typing import Any, Final, Protocol, Self, final

from typing_extensions import disjoint_base

from rmq._fastpath.client.messages import ReceivedMessage

MAX_SPAN: Final = 2_000
"""Most offsets between the first and the last pending message.

All of them would come again after a crash. Java's `consumeConcurrentlyMaxSpan`.
"""

class _Message(Protocol):
    """The fields of a message that a queue reads."""

    @property
    def queue_offset(self) -> int:
        """Its offset in the queue."""

    @property
    def size(self) -> int:
        """Its size in bytes."""

@final
class ProcessQueue:
    """One queue; offsets come in ascending order. Known in Java by the same name."""

    def __init__(self, next_offset: int) -> None: ...
    @property
    def next_offset(self) -> int:
        """The offset where the next pull begins."""

    @property
    def count(self) -> int:
        """Pending messages."""

    @property
    def bytes(self) -> int:
        """Their bytes."""

    def add(self, messages: Collection[_Message], next_offset: int) -> None:
        """Add fetched messages; `next_offset` is where the next pull begins."""

    def ack(self, message: _Message) -> bool:
        """Record that a message is consumed; False if it is not pending."""

    @property
    def commit_offset(self) -> int:
        """The offset to commit: that of the first pending message."""

    @property
    def last_offset(self) -> int:
        """The offset of the last pending message; IndexError without one."""

    @property
    def is_far_ahead(self) -> bool:
        """Whether the pending messages span over MAX_SPAN offsets."""

    def reset(self, offset: int) -> None:
        """Drop all messages, and continue at an offset."""

@disjoint_base
class FetchBuffer:
    """Fetched messages of all queues that are not acknowledged; the base of `Puller`.

    `ready` has messages that were not handed out, `blocked` queues that wait for room.
    """

    count: int
    bytes: int
    ready: deque[ReceivedMessage]
    blocked: set[Any]

@disjoint_base
class Lease:
    """The base of `AssignedQueue`: a queue is the lease of its messages."""

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
    """The iterator of `async for`; the message before counts as consumed.

    `last` is the message or list in the hands of the program, or None. While `is_plain`
    is set, it returns a ready message itself. Else it awaits the consumer.
    """

    is_plain: bool
    last: ReceivedMessage | list[ReceivedMessage] | None

    def __init__(self, consumer: _Consumer, fetched: FetchBuffer) -> None: ...
    def __aiter__(self) -> Self: ...
    async def __anext__(self) -> ReceivedMessage:
        """Return the next message."""
