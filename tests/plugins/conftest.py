"""A broker context on a real store, and a caller that talks to its built-in plugins."""

import inspect
from collections.abc import Callable, Coroutine, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

import rmq_plugins.admin
import rmq_plugins.auth
import rmq_plugins.client
import rmq_plugins.client_requests
import rmq_plugins.consume.lite
import rmq_plugins.consume.pop
import rmq_plugins.consume.pull
import rmq_plugins.export
import rmq_plugins.query
import rmq_plugins.reply
import rmq_plugins.schedule
import rmq_plugins.send
import rmq_plugins.static
import rmq_plugins.timer
import rmq_plugins.transaction
from rmq.broker.assemble import GroupAccess, assemble, set_up_plugins
from rmq.broker.context import BrokerContext
from rmq.cluster.config import ReplicationConfig
from rmq.cluster.directory import Directory, signed_ask
from rmq.config.broker import BrokerConfig
from rmq.core.clock import Clock
from rmq.core.errors import InvokeTimeout, RecordDamaged, RequestRejected
from rmq.plugin.register import MethodOnUse
from rmq.plugin.registry import PluginSet
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import FLAG_ONEWAY, Command
from rmq.protocol.frames import decode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.records import decode_stored
from rmq.remoting.client import RemotingClient
from rmq.remoting.dispatch import Held
from rmq.remoting.server import RemotingServer
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock

PLUGINS = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        rmq_plugins.admin,
        rmq_plugins.auth,
        rmq_plugins.client,
        rmq_plugins.export,
        rmq_plugins.consume.lite,
        rmq_plugins.consume.pop,
        rmq_plugins.consume.pull,
        rmq_plugins.query,
        rmq_plugins.client_requests,
        rmq_plugins.reply,
        rmq_plugins.schedule,
        rmq_plugins.send,
        rmq_plugins.static,
        rmq_plugins.timer,
        rmq_plugins.transaction,
    )
}


class RecordingConnection:
    """What a handler may use of a connection; keeps what was sent."""

    is_inner = False

    def __init__(self, port: int = 40_001, host: str = "127.0.0.1") -> None:
        self.token = port
        self.remote_address = f"{host}:{port}"
        self.remote_host = host_bytes(host, port)
        self.source_host = self.peer_host = host
        self.local_address = "127.0.0.1:10911"
        self.is_open = True
        self.sent: list[Command] = []

    def send_nowait(self, command: Command) -> None:
        self.sent.append(command)

    def send_frame(self, frame: bytes) -> None:
        self.sent.append(decode(frame))

    async def invoke(self, command: Command, timeout_ms: int) -> Command:
        self.sent.append(command)
        return self.answer(command, timeout_ms)

    def answer(self, command: Command, timeout_ms: int) -> Command:
        """What the peer says to a request; tests replace it."""
        raise InvokeTimeout(f"no answer within {timeout_ms} ms")

    def close(self, reason: str = "") -> None:
        self.is_open = False


async def _finish(work: Coroutine[Any, Any, Any]) -> Any:
    return await work


def _answer_to_error(
    request: Command, error: RequestRejected | RecordDamaged
) -> Command:
    if isinstance(error, RequestRejected):
        return request.reply(error.code, error.remark)
    return request.reply(ResponseCode.SYSTEM_ERROR, str(error))


Kind = TypeVar("Kind")


class Caller:
    """Sends requests to the handlers that the plugins registered."""

    def __init__(
        self,
        broker: BrokerContext,
        values: Mapping[str, str] | None = None,
        plugins: Mapping[str, object] | None = None,
    ) -> None:
        """`values` are keys of plugins, `plugins` more of them, by name."""
        self.broker = broker
        self.connection = RecordingConnection()
        self.opaque = 0
        loaded = PluginSet()
        loaded.add({**PLUGINS, **(plugins or {})})
        self.registered = set_up_plugins(broker, loaded, values or {})
        self.handlers: dict[int, Callable[[Command, Any], Any]] = {}
        self.ports: dict[int, tuple[str, ...]] = {}
        claims = self.registered.claims.values()
        self._claims = {int(claim.code): claim for claim in claims}
        for claim in self.registered.claims.values():
            self.handlers[int(claim.code)] = claim.handler
            ports = self.ports.get(int(claim.code), ())
            self.ports[int(claim.code)] = (*ports, claim.port)

    def find(self, kind: type[Kind]) -> Kind:
        """Return the object of a plugin whose method is a handler or a service."""
        functions = [
            *(
                each.resolve() if isinstance(each, MethodOnUse) else each
                for each in self.handlers.values()
            ),
            *(service.run for service in self.registered.services),
        ]
        found = {getattr(each, "__self__", None) for each in functions}
        (only,) = {each for each in found if isinstance(each, kind)}
        return only

    def services(self, plugin: str) -> list[Any]:
        """Return the services of a plugin."""
        services = self.registered.services
        return [each.run for each in services if each.plugin == plugin]

    def report_arrivals(self) -> None:
        """Tell the listeners what came, as the end of a poll does."""
        self.broker.arrivals.flush()

    def handle(self, request: Command, connection: Any = None) -> Any:
        """Return what the handler returned, or the answer to what it raised."""
        try:
            result = self._begin(request, connection)
            return trio.run(_finish, result) if inspect.iscoroutine(result) else result
        except (RequestRejected, RecordDamaged) as error:
            return _answer_to_error(request, error)

    async def serve(self, request: Command) -> Any:
        """Return what `handle` returns, in a test that runs in trio."""
        try:
            result = self._begin(request)
            return await result if inspect.iscoroutine(result) else result
        except (RequestRejected, RecordDamaged) as error:
            return _answer_to_error(request, error)

    def _begin(self, request: Command, connection: Any = None) -> Any:
        claim = self._claims[request.code]
        claim = claim._replace(handler=self.handlers[request.code])
        handler = self.registered.served_by(claim)
        return handler(request, connection or self.connection)

    def call(
        self,
        code: int,
        fields: Mapping[str, object] | None = None,
        body: bytes = b"",
        *,
        connection: Any = None,
        version: int = 513,
        oneway: bool = False,
    ) -> Any:
        self.opaque += 1
        request = Command(
            code,
            {name: str(value) for name, value in (fields or {}).items()},
            body,
            opaque=self.opaque,
            version=version,
            flag=FLAG_ONEWAY if oneway else 0,
        )
        result = self.handle(request, connection)
        return result.response if isinstance(result, Held) else result

    def topic(self, name: str, queues: int = 2, perm: int = 6, **more: Any) -> None:
        """Make a topic exist, as an admin tool does."""
        topics = self.broker.topics
        topics.update(
            TopicConfig(
                topic_name=name,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                **more,
            )
        )
        if self.broker.store_config.is_sync_flush:
            topics.write(topics.snapshot())

    def send(self, topic: str = "T", body: bytes = b"hello", **more: Any) -> Command:
        """Send with the long header; keywords replace fields, None removes them."""
        extra = {
            name: more.pop(name)
            for name in ("connection", "version", "oneway", "code")
            if name in more
        }
        fields: dict[str, object] = {
            "producerGroup": "PG",
            "topic": topic,
            "defaultTopic": "TBW102",
            "defaultTopicQueueNums": 4,
            "queueId": 0,
            "sysFlag": 0,
            "bornTimestamp": 1_795_230_112_758,
            "flag": 0,
            "properties": "",
            "reconsumeTimes": 0,
            "unitMode": "false",
            "batch": "false",
            **more,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        return self.call(extra.pop("code", 10), fields, body, **extra)

    def pull(self, topic: str = "T", offset: int = 0, **more: Any) -> Command | None:
        """Pull with an expression of its own; keywords replace fields."""
        extra = {
            name: more.pop(name)
            for name in ("connection", "version", "oneway", "code")
            if name in more
        }
        fields = {
            "consumerGroup": "G",
            "topic": topic,
            "queueId": 0,
            "queueOffset": offset,
            "maxMsgNums": 32,
            "sysFlag": 4,
            "commitOffset": 0,
            "suspendTimeoutMillis": 0,
            "subscription": "*",
            "subVersion": 0,
            "expressionType": "TAG",
            **more,
        }
        fields = {name: value for name, value in fields.items() if value is not None}
        return self.call(extra.pop("code", 11), fields, **extra)


@pytest.fixture
def make_connection() -> Callable[[], RecordingConnection]:
    """Return a function that makes another connection."""
    return RecordingConnection


def build_context(
    config: BrokerConfig, store: MessageStore, clock: Clock
) -> BrokerContext:
    """Put the real parts together, as a broker does when it starts."""
    ask = signed_ask(RemotingClient(), None)
    group = GroupAccess(
        ReplicationConfig(),
        Directory(ask, (), config, "127.0.0.1:10911"),
        store_host=host_bytes("127.0.0.1", 10_911),
        ha_address="127.0.0.1:10912",
    )
    return assemble(config, store, group, clock=clock, server=RemotingServer())


OpenBroker = Callable[..., BrokerContext]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def open_broker(tmp_path: Path, clock: ManualClock) -> Iterator[OpenBroker]:
    """Return a function that makes a context: broker options, and `store` options."""
    stores = []

    def make(
        *,
        store: Mapping[str, object] | None = None,
        clock: Clock = clock,
        **options: Any,
    ) -> Any:
        store_config = StoreConfig(
            **{
                "root_dir": str(tmp_path / f"store{len(stores)}"),
                "commit_log_file_size": 16 << 20,
                "queue_file_size": 20_000,
                "index_slots": 500,
                "index_entries": 2_000,
                **(store or {}),
            },
        )
        opened = MessageStore.open(
            store_config, clock=clock, store_host=host_bytes("127.0.0.1", 10_911)
        )
        stores.append(opened)
        config = BrokerConfig(**{"broker_name": "broker-a", **options})
        return build_context(config, opened, clock)

    yield make
    for opened in stores:
        opened.close()


@pytest.fixture
def broker(open_broker: OpenBroker) -> BrokerContext:
    return open_broker()


@pytest.fixture
def caller(broker: BrokerContext) -> Caller:
    made = Caller(broker)
    made.topic("T")
    return made


@pytest.fixture
def make_caller_of() -> Callable[..., Caller]:
    """Return a function that makes a caller of a given broker."""

    def make(broker: BrokerContext, **more: Any) -> Caller:
        made = Caller(broker, **more)
        made.topic("T")
        return made

    return make


@pytest.fixture
def make_caller(open_broker: OpenBroker) -> Callable[..., Caller]:
    """Return a function that makes a caller of a broker with these options."""

    def make(**options: Any) -> Caller:
        made = Caller(open_broker(**options))
        made.topic("T")
        return made

    return make


def records(caller, topic="T", queue_id=0):
    """Return what a queue holds, in order."""
    found, offset = [], 0
    while True:
        got = caller.broker.store.reads.get(topic, queue_id, offset, 32)
        if not got.message_count:
            return found
        found += decode_stored(got.body)
        offset = got.next_begin_offset


def bodies(caller, **more):
    """Return the bodies of `records`."""
    return [record.body for record in records(caller, **more)]
