"""A node, its attackers, and a client that must not notice them."""

import struct
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.testing import RawClient, running_node

SEND_FIELDS = {
    "producerGroup": "PG", "topic": "T", "defaultTopic": "TBW102",
    "defaultTopicQueueNums": "4", "queueId": "0", "sysFlag": "0",
    "bornTimestamp": "1795230112758", "flag": "0", "properties": "",
}  # fmt: skip
PULL_FIELDS = {
    "consumerGroup": "G", "topic": "T", "queueId": "0", "queueOffset": "0",
    "maxMsgNums": "32", "sysFlag": "6", "commitOffset": "0",
    "suspendTimeoutMillis": "20000", "subscription": "*", "subVersion": "0",
}  # fmt: skip


def send_request(body: bytes = b"hello", **fields: str) -> Command:
    return Command(RequestCode.SEND_MESSAGE, SEND_FIELDS | fields, body)


def pull_request(**fields: str) -> Command:
    return Command(RequestCode.PULL_MESSAGE, PULL_FIELDS | fields)


class Scene:
    """A running node, and one well-behaved client that has sent a message."""

    def __init__(self, node, stack: AsyncExitStack) -> None:
        self.node = node
        self.context = node.broker.context
        self._stack = stack
        self._sent = 0

    async def start(self) -> None:
        self.friend = await self.connect()
        await self.assert_unhurt()

    async def connect(self, address: str | None = None) -> RawClient:
        connecting = RawClient.connect(address or self.node.address)
        return await self._stack.enter_async_context(connecting)

    async def assert_unhurt(self) -> None:
        """The friend's connection lives, and all that it sent is still there."""
        answer = await self.friend.call(send_request())
        self._sent += 1
        assert answer.code == 0, answer.remark
        assert self.context.store.reads.max_offset("T", 0) == self._sent

    @property
    def open_count(self) -> int:
        return self.node.server.statistics().reactor.connections

    @property
    def buffer_bytes(self) -> int:
        return self.node.server.statistics().reactor.buffer_bytes


def reset(client: RawClient) -> None:
    """End a connection with RST instead of FIN."""
    linger = struct.pack("ii", 1, 0)
    client.stream.setsockopt(1, 13, linger)  # SOL_SOCKET, SO_LINGER
    client.stream.socket.close()


@pytest.fixture
async def scene(tmp_path):
    async with opened_scene(tmp_path) as made:
        yield made


@asynccontextmanager
async def opened_scene(folder, **settings):
    async with running_node(folder, settings) as node, AsyncExitStack() as stack:
        made = Scene(node, stack)
        await made.start()
        yield made


@pytest.fixture
def open_scene(tmp_path):
    """Return a context of a scene with settings of its own."""
    return lambda **settings: opened_scene(tmp_path, **settings)


@pytest.fixture
def requests():
    """The makers of requests, and of an end with RST."""
    return type(
        "Requests",
        (),
        {
            "send": staticmethod(send_request),
            "pull": staticmethod(pull_request),
            "reset": staticmethod(reset),
            "frame": staticmethod(encode),
        },
    )
