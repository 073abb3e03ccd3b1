"""A node in a thread with its own event loop, for tests of any style.

The test, its client library and its threads may block. `run` calls functions in the
loop of the node.
"""

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Self, TypeVar

import trio

from rmq.core.errors import RmqError
from rmq.node.node import Node
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.headers.send import SendMessageRequestHeader
from rmq.protocol.properties import KEYS, TAGS, encode_properties
from rmq.protocol.records import StoredMessage, decode_stored
from rmq.protocol.topics import DEFAULT_TOPIC
from rmq.store.results import GetStatus
from rmq.testing.broker import running_name_server, running_node
from rmq.testing.peer import RawClient

START_LIMIT_S = 30
STOP_LIMIT_S = 30
READ_COUNT = 1024

T = TypeVar("T")


class _NodeThread(ABC):
    """Starts the node when entered; shuts it down cleanly at the end of the block."""

    def __init__(self) -> None:
        self.node: Node
        self._ready = threading.Event()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="rmq")
        self._end: Future[None]
        self._stop: trio.Event
        self._token: trio.lowlevel.TrioToken

    @abstractmethod
    def _run_node(self) -> AbstractAsyncContextManager[Node]:
        """Return the context in which the node runs."""

    def __enter__(self) -> Self:
        self._end = self._executor.submit(trio.run, self._main)
        self._end.add_done_callback(lambda _: self._ready.set())
        if not self._ready.wait(START_LIMIT_S):
            raise RmqError(f"the node was not ready within {START_LIMIT_S} s")
        if self._end.done():
            self.__exit__()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(trio.RunFinishedError):
            self._token.run_sync_soon(self._stop.set)
        self._executor.shutdown(wait=False)
        self._end.result(STOP_LIMIT_S)

    def run(self, function: Callable[..., Awaitable[T]], *arguments: object) -> T:
        """Run an async function in the loop of the node; return its result."""
        return trio.from_thread.run(function, *arguments, trio_token=self._token)

    def request(self, request: Command, address: str | None = None) -> Command:
        """Send a request over a new connection; return the answer."""
        return self.run(_send_request, address or self.address, request)

    @property
    def address(self) -> str:
        """The "host:port" for clients."""
        return self.node.name_servers[0]

    async def _main(self) -> None:
        self._token = trio.lowlevel.current_trio_token()
        self._stop = trio.Event()
        async with self._run_node() as self.node:
            self._ready.set()
            await self._stop.wait()


class NameServerThread(_NodeThread):
    """A name server without a broker; clients and brokers need only its `address`."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        super().__init__()
        self._folder = folder
        self._settings = dict(settings or {})

    def _run_node(self) -> AbstractAsyncContextManager[Node]:
        return running_name_server(self._folder, self._settings)


def send_request(
    topic: str, body: bytes, properties: Mapping[str, str], queue_id: int, born_ms: int
) -> Command:
    """Return a request that stores a message; empty properties are left out."""
    header = SendMessageRequestHeader(
        producer_group="rmq-testing",
        topic=topic,
        default_topic=DEFAULT_TOPIC,
        default_topic_queue_nums=4,
        queue_id=queue_id,
        sys_flag=0,
        born_timestamp=born_ms,
        flag=0,
        properties=encode_properties({n: t for n, t in properties.items() if t}),
    )
    return Command.request(RequestCode.SEND_MESSAGE, header, body)


class BrokerThread(_NodeThread):
    """A broker; it runs its own name server unless `namesrvAddr` is set."""

    def __init__(
        self,
        folder: Path,
        settings: Mapping[str, str] | None = None,
        *,
        plugins: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__()
        self._folder = folder
        self._settings = dict(settings or {})
        self._plugins = plugins

    def _run_node(self) -> AbstractAsyncContextManager[Node]:
        return running_node(self._folder, self._settings, plugins=self._plugins)

    @property
    def address(self) -> str:
        """The "host:port" of the broker's main port."""
        return self.node.address

    @property
    def name_server(self) -> str:
        """The "host:port" of the name server, for clients."""
        return self.node.name_servers[0]

    def create_topic(self, name: str, queues: int = 4) -> None:
        """Create a topic; return after the name server has its route."""
        topic = TopicConfig(
            topic_name=name, read_queue_nums=queues, write_queue_nums=queues
        )
        self.run(self._create_topic, topic)

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tags: str = "",
        keys: str = "",
        queue_id: int = 0,
        properties: Mapping[str, str] | None = None,
    ) -> str:
        """Send a message over the wire; return its id. The topic may be new."""
        if not isinstance(body, bytes):
            raise TypeError(
                f"the body of a message is bytes, not {type(body).__name__}: "
                "encode a text with .encode()"
            )
        texts = {TAGS: tags, KEYS: keys, **(properties or {})}
        answer = self.request(
            send_request(topic, body, texts, queue_id, self._now_ms())
        )
        if answer.code != ResponseCode.SUCCESS:
            raise RmqError(
                f"the broker refuses the message: {answer.code}: {answer.remark}"
            )
        return answer.ext_fields["msgId"]

    def messages(self, topic: str) -> list[StoredMessage]:
        """Return every stored message of a topic, queue by queue."""
        return self.run(self._messages, topic)

    def _now_ms(self) -> int:
        assert self.node.broker is not None
        return self.node.broker.context.clock.now_ms()

    async def _create_topic(self, topic: TopicConfig) -> None:
        assert self.node.broker is not None
        self.node.broker.context.topics.update(topic)
        await self.node.broker.context.name_servers.register_all()

    async def _messages(self, topic: str) -> list[StoredMessage]:
        assert self.node.broker is not None
        context = self.node.broker.context
        config = context.topics.get(topic)
        found: list[StoredMessage] = []
        for queue_id in range(config.write_queue_nums if config else 0):
            offset = context.store.reads.min_offset(topic, queue_id)
            while True:
                read = context.store.reads.get(
                    topic, queue_id, offset, READ_COUNT, is_own=True
                )
                if read.status is not GetStatus.FOUND:
                    break
                found += decode_stored(read.body)
                offset = read.next_begin_offset
        return found


async def _send_request(address: str, request: Command) -> Command:
    async with RawClient.connect(address) as client:
        return await client.call(request)
