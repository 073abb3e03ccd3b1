"""TestClient: sends and receives messages, with a consumer group for this test alone.

It is the result of the fixture `rmq_client`. `async with rmq_client() as client` works
in an async test of any pytest plugin, under asyncio and trio.
"""

import itertools
from types import TracebackType
from typing import Final, Self

import anyio

from rmq.client import Client, Consumer, Message, Producer, ReceivedMessage, SendResult
from rmq.core.errors import RmqError

_numbers: Final = itertools.count()


class TestClient:
    """Sends messages, and receives the messages of a topic from its start."""

    __test__ = False  # pytest must not collect it

    def __init__(self, name_server: str) -> None:
        self.client = Client(name_server)
        self.producer = Producer(self.client)
        self._group = f"rmq-test-{next(_numbers)}"
        self._consumers: dict[str, Consumer] = {}

    async def __aenter__(self) -> Self:
        await self.client.__aenter__()
        await self.producer.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            for consumer in reversed(self._consumers.values()):
                await consumer.__aexit__(kind, error, trace)
            await self.producer.__aexit__(kind, error, trace)
        finally:
            await self.client.__aexit__(kind, error, trace)

    async def send(self, message: Message) -> SendResult:
        """Send a message."""
        return await self.producer.send(message)

    async def receive(
        self, topic: str, count: int, *, timeout_s: float = 5
    ) -> list[ReceivedMessage]:
        """Return the next messages of a topic; RmqError if fewer come in time."""
        consumer = self._consumers.get(topic)
        if consumer is None:
            group = f"{self._group}-{len(self._consumers)}"
            consumer = Consumer(self.client, group, topic, start="first")
            self._consumers[topic] = await consumer.__aenter__()
        received: list[ReceivedMessage] = []
        with anyio.move_on_after(timeout_s):
            async for message in consumer:
                received.append(message)
                if len(received) == count:
                    return received
        raise RmqError(
            f"{len(received)} of {count} messages of {topic} came in {timeout_s:g} s"
        )
