"""Several name servers: the broker registers with each, whatever the others do."""

import socket
from contextlib import contextmanager

import pytest
import trio

from rmq.broker.nameservers import (
    FULL_EVERY,
    PROPAGATION_WAIT_S,
    TOPICS_ONE_BY_ONE,
    NameServers,
)
from rmq.broker.tables.queue_mappings import QueueMappings
from rmq.broker.tables.topics import TopicTable
from rmq.cluster.directory import Directory, signed_ask
from rmq.cluster.group_role import GroupRole
from rmq.config.broker import BrokerConfig
from rmq.core.errors import ConnectFailed, RequestRejected
from rmq.namesrv.config import NamesrvConfig, NamesrvListenConfig
from rmq.namesrv.handlers import NameServerHandlers, NameServerParts
from rmq.namesrv.kv_config import KVConfig
from rmq.namesrv.registration import Caller as Spokesman
from rmq.namesrv.routes import RouteTable
from rmq.protocol.bodies.register import RegisterBrokerBody
from rmq.protocol.bodies.topics import TopicConfig
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.headers.send import SendMessageRequestHeader
from rmq.protocol.topics import SELF_TEST_TOPIC
from rmq.store.config import StoreConfig
from rmq.testing import ManualClock, RawClient, running_name_server, running_node
from tests.address_server import AddressServer
from tests.interop.processes import free_port
from tests.waiting import until


@contextmanager
def silent_server():
    """Accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@pytest.mark.slow
async def test_a_silent_name_server_holds_neither_start_nor_stop_nor_the_others(
    tmp_path,
):
    with silent_server() as silent:
        async with running_name_server(tmp_path / "n") as names:
            routes = names.name_server.routes
            settings = {"namesrvAddr": f"{silent};{names.name_servers[0]}"}
            before = trio.current_time()
            async with running_node(tmp_path / "s", settings) as node:
                assert trio.current_time() - before < 3
                assert routes.group("broker-test") is not None
                topics = node.broker.context.topics
                topics.update(TopicConfig(topic_name="Fresh"))
                await until(lambda: routes.route("Fresh") is not None)
                status = node.broker.context.name_servers.statistics()
                assert [one.is_registered for one in status] == [False, True]
                before = trio.current_time()
            assert trio.current_time() - before < 6
            assert routes.group("broker-test") is None


async def test_a_name_server_that_returns_is_told_everything(tmp_path, monkeypatch):
    monkeypatch.setattr("rmq.outgoing.connections.FIRST_PAUSE_MS", 0)
    port = free_port()
    settings = {"namesrvAddr": f"127.0.0.1:{port}"}
    async with running_node(tmp_path / "s", settings) as node:
        names = node.broker.context.name_servers
        (status,) = names.statistics()
        assert not status.is_registered
        assert str(port) in status.error
        listening = {"listenPort": str(port)}
        async with running_name_server(tmp_path / "n", listening) as server:
            names.register_soon()
            routes = server.name_server.routes
            await until(lambda: routes.group("broker-test") is not None)
            await until(lambda: names.statistics()[0].is_registered)
            assert len(routes.topics.names()) >= 14


async def test_topics_changed_together_reach_the_name_server(tmp_path):
    async with running_node(tmp_path) as node:
        topics, routes = node.broker.context.topics, node.name_server.routes
        for name in ("A", "B", "C"):
            topics.update(TopicConfig(topic_name=name))
        await until(lambda: all(routes.route(name) for name in "ABC"))


async def test_a_topic_in_order_is_marked_on_the_broker(tmp_path):
    async with running_node(tmp_path) as node:
        topics = node.broker.context.topics
        topics.update(TopicConfig(topic_name="Ordered"))
        node.name_server.kv_config.put("ORDER_TOPIC_CONFIG", "Ordered", "broker-test:4")
        node.broker.context.name_servers.register_soon()
        await until(lambda: topics.get("Ordered").order)


class Direct:
    """A client whose only peer is a name server in this process."""

    def __init__(self, clock, tmp_path):
        self.routes = RouteTable(clock.now_ms)
        self.handlers = NameServerHandlers(
            NameServerParts(
                NamesrvConfig(),
                self.routes,
                KVConfig(tmp_path / "kvConfig.json", clock),
                lambda address, _connection: address,
                clock.now_ms,
                NamesrvListenConfig(),
                lambda _connection: Spokesman(),
            )
        ).table()
        self.codes, self.topics = [], []

    async def invoke(self, _address, request, _timeout_ms):
        await trio.lowlevel.checkpoint()
        self.codes.append(int(request.code))
        if request.code == RequestCode.REGISTER_BROKER:
            body = RegisterBrokerBody.decode(request.body)
            wrapper = body.topic_config_serialize_wrapper
            self.topics.append(set(wrapper.topic_config_table))
        handler = self.handlers.entries[int(request.code)].handler
        try:
            return handler(request, None)
        except RequestRejected as refusal:
            return request.reply(refusal.code, refusal.remark)

    def take(self):
        """Return the request codes since the last time."""
        codes, self.codes = self.codes, []
        return codes


@pytest.fixture
def direct(tmp_path):
    return Direct(ManualClock(), tmp_path)


@pytest.fixture
def config():
    return BrokerConfig(
        broker_name="b", namesrv_addr="n:1", register_name_server_period_ms=10_000
    )


@pytest.fixture
def topics(config, tmp_path):
    topics = TopicTable(tmp_path, ManualClock(), config)
    topics.load()
    return topics


def name_servers_of(config, topics, direct, folder):
    """The name servers of a broker whose requests go to `direct`."""
    ask, role = signed_ask(direct, None), GroupRole(config, StoreConfig())
    directory = Directory(ask, config.name_servers, config, "10.0.0.1:10911")
    mappings = QueueMappings(folder, ManualClock(), config.broker_name)
    return NameServers(
        config,
        role,
        topics,
        directory,
        mappings,
        ha_address="",
        inactive_timeout_ms=10_000,
    )


@pytest.fixture
def names(config, topics, direct, tmp_path):
    return name_servers_of(config, topics, direct, tmp_path)


@pytest.fixture
async def told(names, topics, nursery):
    """A table of topics whose changes a name server is told, with its periods."""
    topics.on_change.append(names.topic_changed)
    await nursery.start(names.run)
    return topics


async def test_a_name_server_that_knows_the_version_gets_one_topic(
    direct, told, autojump_clock
):
    """All topics went each 30 s: a pause of 218 ms with 30,000 of them."""
    assert direct.take() == [103]
    assert direct.topics == [set(told.all())]
    await trio.sleep(10.5)
    assert direct.take() == [322, 103]
    assert direct.topics[1] == {SELF_TEST_TOPIC}
    told.update(TopicConfig(topic_name="New"))
    await trio.sleep(1)
    assert direct.take() == [103]
    assert direct.topics[2] == {"New"}
    await trio.sleep(10)
    assert direct.take() == [322, 103]
    assert direct.topics[3] == {SELF_TEST_TOPIC}
    assert direct.routes.route("New") is not None


async def test_changes_of_a_moment_go_one_by_one_and_many_as_a_whole(
    direct, told, autojump_clock
):
    direct.topics.clear()
    for number in range(3):
        told.update(TopicConfig(topic_name=f"T{number}"))
    await trio.sleep(1)
    assert direct.topics == [{"T0"}, {"T1"}, {"T2"}]
    assert all(direct.routes.route(f"T{number}") for number in range(3))
    direct.topics.clear()
    for number in range(TOPICS_ONE_BY_ONE + 1):
        told.update(TopicConfig(topic_name=f"U{number}"))
    await trio.sleep(1)
    assert direct.topics == [set(told.all())]
    assert direct.routes.route("U0") is not None


async def test_topics_that_are_created_together_go_after_the_last_one(
    direct, told, names, autojump_clock
):
    direct.take()
    with names.collect_changes():
        for number in range(3):
            told.update(TopicConfig(topic_name=f"L{number}"))
            await trio.sleep(1)
            assert direct.take() == []
    await trio.sleep(1)
    assert direct.take() == [103] * 3


async def test_a_failed_list_of_topics_is_sent_as_far_as_it_came(
    direct, told, names, autojump_clock
):
    direct.take()

    def fail_after_a_topic():
        with names.collect_changes():
            told.update(TopicConfig(topic_name="L"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_after_a_topic()
    await trio.sleep(1)
    assert direct.take() == [103]


async def test_a_table_is_split_if_the_configuration_demands_it(
    tmp_path, direct, nursery, autojump_clock
):
    config = BrokerConfig(
        broker_name="b",
        namesrv_addr="n:1",
        register_name_server_period_ms=10_000,
        splits_registration=True,
        split_registration_size=5,
    )
    topics = TopicTable(tmp_path, ManualClock(), config)
    topics.load()
    names = name_servers_of(config, topics, direct, tmp_path)
    await nursery.start(names.run)
    assert len(direct.topics) == -(-len(topics) // 5)
    assert max(map(len, direct.topics)) == 5
    assert set().union(*direct.topics) == set(topics.all())
    direct.take()
    await trio.sleep(10.5)
    assert direct.take() == [322, 103], "the version of the last part is known"


async def test_name_servers_come_and_go_while_the_broker_runs(tmp_path):
    page = AddressServer()
    settings = {
        "fetchNamesrvAddrByAddressServer": "true",
        "fetchNamesrvAddrInterval": "100",
        "rocketmq.namesrv.domain": page.host,
    }
    try:
        async with (
            running_name_server(tmp_path / "n1") as one,
            running_name_server(tmp_path / "n2") as two,
            running_node(tmp_path / "s", settings) as node,
        ):
            (first,), (second,) = one.name_servers, two.name_servers
            names = node.broker.context.name_servers
            assert node.name_server is None
            assert names.statistics() == ()
            page.page = first.encode()
            routes = one.name_server.routes
            await until(lambda: routes.group("broker-test") is not None)
            page.page = f"{second};{first}".encode()
            await until(lambda: two.name_server.routes.group("broker-test"))
            await until(lambda: all(s.is_registered for s in names.statistics()))
            page.page = second.encode()
            await until(lambda: [s.address for s in names.statistics()] == [second])
            assert names.directory.name_servers == (second,)
            topics = node.broker.context.topics
            topics.update(TopicConfig(topic_name="Fresh"))
            await names.wait_propagated(None, ["Fresh"])
            assert two.name_server.routes.route("Fresh") is not None
            assert routes.route("Fresh") is None
    finally:
        page.stop()


@pytest.mark.parametrize("pauses", range(4))
async def test_a_registration_of_all_waits_for_one_that_is_on_its_way(
    direct, names, told, pauses
):
    """It found nothing to send and returned before the name server had answered."""
    told.update(TopicConfig(topic_name="New"))
    for _ in range(pauses):
        await trio.lowlevel.checkpoint()
    await names.register_all()
    assert direct.routes.route("New") is not None


async def test_a_name_server_that_forgot_is_told_everything(
    direct, told, autojump_clock
):
    direct.take()
    direct.routes.unregister("DefaultCluster", "10.0.0.1:10911", "b", 0)
    assert direct.routes.group("b") is None
    await trio.sleep(10.5)
    assert direct.take() == [322, 103]
    assert direct.topics[-1] == set(told.all())


async def test_a_deleted_topic_makes_the_full_table_go(direct, told, autojump_clock):
    told.update(TopicConfig(topic_name="Gone"))
    await trio.sleep(1)
    direct.take()
    told.delete("Gone")
    await trio.sleep(1)
    assert direct.take() == [103]
    assert direct.topics[-1] == set(told.all())


async def test_the_full_table_goes_now_and_then(direct, told, autojump_clock):
    direct.take()
    await trio.sleep(10 * FULL_EVERY + 1)
    assert direct.take() == [322, 103] * (FULL_EVERY - 1) + [103]
    assert direct.topics[-1] == set(told.all())


async def test_what_the_broker_may_not_do_is_taken_from_every_topic(
    direct, tmp_path, nursery, autojump_clock
):
    config = BrokerConfig(broker_name="b", namesrv_addr="n:1", broker_permission=4)
    topics = TopicTable(tmp_path, ManualClock(), config)
    topics.load()
    names = name_servers_of(config, topics, direct, tmp_path)
    await nursery.start(names.run)
    (queues,) = direct.routes.route(SELF_TEST_TOPIC).queue_datas
    assert queues.perm == 4


async def test_an_answer_waits_until_the_name_server_knows_the_topic(
    direct, names, told
):
    """The Go client asked once, right after the answer, and found no route."""
    told.update(TopicConfig(topic_name="New"))
    assert not names.is_propagated("New")
    assert direct.routes.route("New") is None
    assert await names.wait_propagated("answer", ["New"]) == "answer"
    assert direct.routes.route("New") is not None
    assert names.is_propagated("New")


async def test_a_silent_name_server_delays_an_answer_by_a_second(
    direct, names, told, autojump_clock, monkeypatch
):
    async def never(*_arguments):
        await trio.sleep_forever()

    monkeypatch.setattr(direct, "invoke", never)
    told.update(TopicConfig(topic_name="New"))
    began = trio.current_time()
    await names.wait_propagated(None, ["New"])
    assert trio.current_time() - began == pytest.approx(PROPAGATION_WAIT_S)
    assert names.is_propagated("New"), "later sends do not wait again"


async def test_nobody_waits_for_a_name_server_that_is_down(
    direct, names, told, autojump_clock, monkeypatch
):
    async def refused(*_arguments):
        raise ConnectFailed("nobody listens")

    monkeypatch.setattr(direct, "invoke", refused)
    told.update(TopicConfig(topic_name="New"))
    began = trio.current_time()
    await names.wait_propagated(None, ["New"])
    told.update(TopicConfig(topic_name="Newer"))
    await names.wait_propagated(None, ["Newer"])
    assert trio.current_time() == began


@pytest.mark.parametrize("forgets", [True, False])
async def test_a_deleted_topic_is_gone_before_its_answer(
    direct, names, told, monkeypatch, forgets
):
    """Also at a name server that keeps what a table of a broker lacks."""
    monkeypatch.setattr(direct.routes, "keeps_unregistered_topics", not forgets)
    told.update(TopicConfig(topic_name="Gone"))
    await names.wait_propagated(None, ["Gone"])
    told.delete("Gone")
    await names.wait_propagated(None, ["Gone"])
    assert direct.routes.route("Gone") is None


async def test_a_large_table_is_not_sent_for_each_deletion(
    direct, names, told, autojump_clock, monkeypatch
):
    monkeypatch.setattr("rmq.broker.nameservers.PROPAGATED_AT_ONCE", 3)
    told.update(TopicConfig(topic_name="Gone"))
    await names.wait_propagated(None, ["Gone"])
    direct.take()
    told.delete("Gone")
    began = trio.current_time()
    await names.wait_propagated(None, ["Gone"])
    assert trio.current_time() == began
    assert direct.take() == []


async def test_a_deletion_does_not_wait_for_changes_of_other_topics(
    direct, names, told, autojump_clock, monkeypatch
):
    """After 5,000 new topics each deletion waited a second for their registration."""
    monkeypatch.setattr("rmq.broker.nameservers.PROPAGATED_AT_ONCE", 3)
    told.update(TopicConfig(topic_name="Old"))
    await names.wait_propagated(None, ["Old"])
    told.update(TopicConfig(topic_name="Fresh"))
    told.delete("Old")
    await names.wait_propagated(None, ["Old"])
    assert not names.is_propagated("Fresh")
    await names.wait_propagated(None, ["Fresh"])
    assert direct.routes.route("Fresh") is not None


async def test_a_send_that_makes_a_topic_is_answered_when_its_route_is_there(
    tmp_path, monkeypatch
):
    """And other requests of the same connection are answered before."""
    async with running_node(tmp_path) as node:
        names, routes = node.broker.context.name_servers, node.name_server.routes
        ask, go_on = names.send_request, trio.Event()

        async def slowly(*arguments):
            await go_on.wait()
            return await ask(*arguments)

        monkeypatch.setattr(names, "send_request", slowly)
        async with RawClient.connect(node.address) as client:
            header = SendMessageRequestHeader(
                producer_group="P", topic="Fresh", default_topic="TBW102",
                default_topic_queue_nums=4, queue_id=0, sys_flag=0, born_timestamp=1,
                flag=0,
            )  # fmt: skip
            send = Command.request(RequestCode.SEND_MESSAGE, header, b"hello")
            send.opaque = 77
            await client.send_bytes(encode(send))
            await client.call(Command.request(RequestCode.GET_BROKER_CONFIG))
            assert not client.pushed
            assert routes.route("Fresh") is None
            go_on.set()
            while not client.pushed:
                await client.call(Command.request(RequestCode.GET_BROKER_CONFIG))
            assert [answer.opaque for answer in client.pushed] == [77]
            assert routes.route("Fresh") is not None


async def test_a_topic_that_one_broker_deletes_leaves_its_routes(tmp_path):
    """Request 215 alone: name servers kept the topic for ever."""
    async with running_name_server(tmp_path / "n") as names:
        settings = {"namesrvAddr": names.name_servers[0]}
        async with (
            running_node(tmp_path / "s", settings) as node,
            RawClient.connect(node.address) as client,
        ):
            routes, topics = names.name_server.routes, node.broker.context.topics
            topics.update(TopicConfig(topic_name="Gone"))
            await until(lambda: routes.route("Gone") is not None)
            delete = Command(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "Gone"})
            assert (await client.call(delete)).code == 0
            assert routes.route("Gone") is None
            assert routes.route(SELF_TEST_TOPIC) is not None
            topics.update(TopicConfig(topic_name="Gone"))
            await until(lambda: routes.route("Gone") is not None)
