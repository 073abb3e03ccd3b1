"""The 5.x SDKs through Java's unmodified proxy, with rmq as name server and broker.

RMQ_INTEROP_BROKER=java puts Java's own servers there, to see whose fault a failure is.
"""

import os
import time
from collections import defaultdict
from contextlib import ExitStack

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode

from . import wire
from .conftest import needs, prepared
from .drivers import driving, eventually
from .five import SDKS, JavaProxy, group_body
from .messages import digests
from .processes import Server, broker_arguments, free_port
from .test_name_servers import is_up, java_server

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240, func_only=True)]

NAME, CLUSTER = "broker-five", "DefaultCluster"
QUEUES, COUNT = 4, 60
DELAY_MS = 6_000
LATE_MS = 5_000
ON_THE_WAY_MS = 2_000
"""From the broker, where the time begins, to a client on a busy machine."""

RECALL_MS = 10_000
SETTLED_S = 1
"""The proxy serves a consumer only after it has got the consumer's settings."""

SETTINGS: dict[str, object] = {
    "brokerName": NAME,
    "brokerClusterName": CLUSTER,
    "recallMessageEnable": "true",
    "enablePropertyFilter": "true",
    "transactionTimeOut": 2_000,
    "transactionCheckInterval": 2_000,
}


class Rmq:
    """Name server and broker on fixed ports, so that they can be started again."""

    def __init__(self, folder, settings=SETTINGS):
        self._port, namesrv_port = free_port(), free_port()
        self.namesrv = f"127.0.0.1:{namesrv_port}"
        self.address = f"127.0.0.1:{self._port}"
        ports = {"listenPort": self._port, "rmq.namesrv.listenPort": namesrv_port}
        settings = [f"{key}={value}" for key, value in (settings | ports).items()]
        self._arguments = broker_arguments(folder, *settings)
        self._server = None

    def start(self):
        self._server = Server(*self._arguments)

    def stop(self):
        if self._server is not None:
            assert self._server.stop() == 0
            self._server = None


class JavaBelow:
    """Java's name server and broker in the place of rmq."""

    def __init__(self, folder, settings=SETTINGS):
        self._folder, self._settings = folder, settings
        self._ports = free_port(), free_port()
        self.namesrv, self.address = (f"127.0.0.1:{port}" for port in self._ports)
        self._namesrv, self._broker = ExitStack(), ExitStack()

    def start(self):
        namesrv_port, port = self._ports
        if not is_up(self.namesrv):
            home = self._folder / "namesrv"
            self._namesrv.enter_context(
                java_server(
                    home, "namesrv.NamesrvStartup", {"listenPort": namesrv_port}
                )
            )
            eventually(lambda: is_up(self.namesrv), "Java's name server serves", 60)
        settings = self._settings | {
            "listenPort": port, "haListenPort": port - 1, "brokerIP1": "127.0.0.1",
            "namesrvAddr": self.namesrv, "storePathRootDir": self._folder / "store",
        }  # fmt: skip
        self._broker.enter_context(
            java_server(self._folder / "broker", "broker.BrokerStartup", settings)
        )
        eventually(
            lambda: wire.route(self.namesrv, CLUSTER) is not None, "registered", 90
        )

    def stop(self):
        """The broker alone; the name server goes with the whole."""
        self._broker.close()

    def close(self):
        self._broker.close()
        self._namesrv.close()


@pytest.fixture(scope="module", params=SDKS, ids=lambda kind: kind().name)
def client(request):
    """Each of the SDKs, installed."""
    return prepared(request.param())


@pytest.fixture(scope="module")
def below(tmp_path_factory):
    """The servers that the proxy serves from."""
    is_java = os.environ.get("RMQ_INTEROP_BROKER") == "java"
    made = (JavaBelow if is_java else Rmq)(tmp_path_factory.mktemp("broker"))
    try:
        made.start()
        yield made
    finally:
        made.stop()
        if is_java:
            made.close()


@pytest.fixture(scope="module")
def proxy(below, tmp_path_factory):
    if missing := JavaProxy.missing():
        pytest.skip(f"not run: {missing}")
    home = tmp_path_factory.mktemp("proxy")
    made = JavaProxy(home, below.namesrv, free_port(), CLUSTER)
    try:
        made.start()
        yield made
    finally:
        made.stop()


class Stage:
    """One SDK with a topic and a group that nobody used before."""

    def __init__(self, client, proxy, below, home, name):
        self._client, self._proxy, self._home = client, proxy, home
        self.below = below
        self.name = name

    def make(self, kind="NORMAL", **group_settings):
        address = self.below.address
        wire.make_topic(address, self.name, QUEUES, f"+message.type={kind}")
        body = group_body(self.name, **group_settings)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = wire.call(address, code, body=body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def _driving(self, scenario, count, options):
        texts = [f"{name}={value}" for name, value in options.items()]
        return driving(
            self._client, self._home / scenario, scenario, self._proxy.endpoints,
            self.name, count, *texts,
        )  # fmt: skip

    def sending(self, count=COUNT, **options):
        return self._driving("send", count, options)

    def send(self, count=COUNT, **options):
        with self.sending(count, **options) as producer:
            assert producer.finish()["count"] == count, producer.story()

    def consuming(self, count=COUNT, **options):
        """A push consumer; an SDK without one receives `count` messages instead."""
        scenario = "push" if "push" in self._client.can else "simple"
        return self._driving(scenario, count, {"group": self.name, **options})

    def receiving(self, count=COUNT, **options):
        return self._driving("simple", count, {"group": self.name, **options})

    @property
    def committed(self):
        return wire.committed(self.below.address, self.name, self.name, QUEUES)


@pytest.fixture
def stage(client, proxy, below, tmp_path, request):
    text = request.node.name.removeprefix("test_")
    name = "".join(each if each.isalnum() else "-" for each in text)
    return Stage(client, proxy, below, tmp_path, name)


def settled(consumer):
    consumer.wait_ready()
    time.sleep(SETTLED_S)
    return consumer


def test_push(stage, client):
    needs(client, "push")
    stage.make()
    with stage.consuming() as consumer:
        settled(consumer)
        stage.send()
        consumer.wait_received(COUNT)
        eventually(lambda: stage.committed == COUNT, "all acked", 15)
        consumer.finish()
    assert sorted(consumer.digests) == digests(range(COUNT))
    assert {each["attempt"] for each in consumer.of("received")} == {1}


def test_simple_consumer(stage):
    stage.make()
    with stage.receiving() as consumer:
        settled(consumer)
        stage.send()
        consumer.wait(lambda: bool(consumer.of("done")), "all acked")
        assert consumer.finish()["count"] == COUNT
    assert sorted(consumer.digests) == digests(range(COUNT))
    eventually(lambda: stage.committed == COUNT, "all acks reached the broker", 15)


@pytest.mark.parametrize(
    "wanted", [{"tags": "Tag1"}, {"sql": "number > 39"}], ids=["tags", "sql"]
)
def test_filter(stage, wanted):
    expected = range(1, COUNT, 3) if "tags" in wanted else range(40, COUNT)
    stage.make()
    with stage.consuming(len(expected), **wanted) as consumer:
        settled(consumer)
        stage.send()
        consumer.wait_received(len(expected))
    assert sorted(consumer.digests) == digests(expected)


def test_fifo(stage):
    stage.make("FIFO", consumeMessageOrderly=True)
    with stage.consuming() as consumer:
        settled(consumer)
        stage.send(kind="fifo")
        consumer.wait_received(COUNT, 90)
    order = defaultdict(list)
    for number in consumer.numbers:
        if number not in order[number % 4]:
            order[number % 4].append(number)
    for first, numbers in order.items():
        assert numbers == list(range(first, COUNT, 4))
    assert sorted(set(consumer.digests)) == digests(range(COUNT))


def test_delay(stage):
    stage.make("DELAY")
    with stage.consuming() as consumer:
        settled(consumer)
        stage.send(kind="delay", delay=DELAY_MS)
        consumer.wait_received(COUNT)
    assert sorted(consumer.digests) == digests(range(COUNT))
    late = [each["at"] - each["due"] for each in consumer.of("received")]
    assert min(late) >= 0
    assert max(late) < LATE_MS


def test_recall(stage, client):
    needs(client, "recall")
    stage.make("DELAY")
    count = 10
    with stage.consuming() as consumer:
        settled(consumer)
        stage.send(count, kind="recall", delay=RECALL_MS)
        consumer.wait_received(count // 2)
        time.sleep(3)
    assert sorted(consumer.digests) == digests(range(0, count, 2))


def test_transaction(stage):
    """Commit, rollback, and the answer to the broker's question."""
    stage.make("TRANSACTION")
    committed = [number for number in range(COUNT) if number % 3 != 1]
    with (
        stage.consuming(len(committed)) as consumer,
        stage.sending(kind="transaction") as producer,
    ):
        settled(consumer)
        consumer.wait_received(len(committed), 90)
        producer.finish()
    assert sorted(set(consumer.digests)) == digests(committed)
    checked = {each["number"] for each in producer.of("checked")}
    assert checked == set(range(2, COUNT, 3))


def test_not_acked_comes_again(stage):
    stage.make()
    count = 10
    with stage.receiving(count, forget=1, invisible=10) as consumer:
        settled(consumer)
        stage.send(count)
        consumer.wait(lambda: bool(consumer.of("done")), "all acked")
    assert_second_attempts(consumer, count, 10_000)


def test_change_of_the_invisible_duration(stage, client):
    needs(client, "change")
    stage.make()
    count = 10
    with stage.receiving(count, change=3, invisible=60) as consumer:
        settled(consumer)
        stage.send(count)
        consumer.wait(lambda: bool(consumer.of("done")), "all acked", 45)
    assert_second_attempts(consumer, count, 3_000)


def assert_second_attempts(consumer, count, pause_ms):
    attempts = defaultdict(list)
    for each in consumer.of("received"):
        attempts[each["number"]].append((each["attempt"], each["at"]))
    assert sorted(attempts) == list(range(count))
    for (first, at), (second, again) in attempts.values():
        assert (first, second) == (1, 2)
        assert pause_ms - ON_THE_WAY_MS <= again - at < pause_ms + LATE_MS


def test_failure_is_delivered_again(stage, client):
    needs(client, "fail")
    stage.make()
    count = 10
    with stage.consuming(fail=1) as consumer:
        settled(consumer)
        stage.send(count)
        consumer.wait(lambda: len(consumer.numbers) == 2 * count, "each came twice")
        eventually(lambda: stage.committed >= count, "all acked", 30)
    assert sorted(set(consumer.digests)) == digests(range(count))


def test_dead_letters(stage, client):
    needs(client, "dead letters")
    stage.make(retryMaxTimes=1)
    count = 10
    with stage.consuming(fail=99) as consumer:
        settled(consumer)
        stage.send(count)
        dead = f"%DLQ%{stage.name}"
        eventually(lambda: len(records(stage, dead)) == count, "all given up")
    assert {each["attempt"] for each in consumer.of("received")} == {1, 2}
    numbers = {int(each.properties["number"]) for each in records(stage, dead)}
    assert numbers == set(range(count))


def records(stage, topic):
    if wire.route(stage.below.namesrv, topic) is None:
        return []
    return wire.pull(stage.below.address, topic, queues=1)


@pytest.mark.parametrize("what", ["broker", "proxy"])
def test_restart(stage, client, proxy, what):
    """Sends that were acknowledged arrive; both clients, or a new consumer, go on."""
    server = stage.below if what == "broker" else proxy
    stage.make()
    with (
        stage.consuming(2 * COUNT) as consumer,
        stage.sending(2 * COUNT, retry="true", every=50) as producer,
    ):
        consumer.wait_received(COUNT // 2)
        server.stop()
        time.sleep(1)
        server.start()
        assert producer.finish()["count"] == 2 * COUNT
        if what == "proxy" and "settings again" not in client.can:
            found = received_by_another(stage, consumer)
        else:
            consumer.wait_received(2 * COUNT, 90)
            found = consumer.digests
    assert sorted(set(found)) == digests(range(2 * COUNT))


def received_by_another(stage, consumer):
    consumer.kill()
    seen = set(consumer.numbers)
    with stage.consuming(2 * COUNT) as another:
        settled(another)
        another.wait(
            lambda: len(seen | set(another.numbers)) == 2 * COUNT, "the rest", 90
        )
    return consumer.digests + another.digests
