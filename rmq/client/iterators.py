"""Iterators over messages.

These are classes and not async generators, because a task that has ended cannot close
an abandoned generator.
"""

from typing import Protocol, Self

from rmq._fastpath.client.messages import ReceivedMessage


class MessageSource(Protocol):
    """The consumer, as its iterators see it."""

    async def next_list(self, count: int, wait_ms: int) -> list[ReceivedMessage]:
        """Return the next list, an empty list at the end; acknowledge the previous
        list.
        """

    async def next_delivery(self) -> ReceivedMessage | None:
        """Return the next message, None at the end; acknowledge no message."""


class BatchIterator:
    """The iterator of `Consumer.batches`."""

    def __init__(self, source: MessageSource, count: int, wait_ms: int) -> None:
        self._source = source
        self._count = count
        self._wait_ms = wait_ms

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> list[ReceivedMessage]:
        """Return the next list."""
        messages = await self._source.next_list(self._count, self._wait_ms)
        if not messages:
            raise StopAsyncIteration
        return messages


class DeliveryIterator:
    """The iterator of `Consumer.deliveries`."""

    def __init__(self, source: MessageSource) -> None:
        self._source = source

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        """Return the next message."""
        message = await self._source.next_delivery()
        if message is None:
            raise StopAsyncIteration
        return message
