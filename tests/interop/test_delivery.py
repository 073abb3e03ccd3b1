"""Clients and later deliveries: retries, delays, transactions, replies.

Each scenario runs straight, with a clean restart in the middle, with a kill, and with a
kill after which the other broker goes on with the store: Java's with rmq's, or rmq with
Java's. Interrupted, a message may come more than once; without, it comes as often as
expected.
"""

import json
from contextlib import ExitStack

import pytest

from rmq.protocol.bodies.queues import GetConsumerStatusBody
from rmq.protocol.codes import RequestCode
from tests.waiting import wait_until

from . import wire
from .conftest import needs, prepared
from .drivers import driving, send
from .interchange import is_served
from .messages import digest_of_stored, digests
from .processes import broker_arguments, free_port, serving
from .test_name_servers import java_server
from .toolchains import Go, Java, JavaServers, Node, Pip, Rmq

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME = "broker-delivery"
QUEUES = 4
COUNT = 60
CLIENTS = (Rmq, Java, Go, Pip, Node)
INTERRUPTIONS = ("straight", "restart", "kill", "rmq to Java", "Java to rmq")
NEEDS = {
    "test_dead_letters": "dead letters",
    "test_transactions": "transaction",
    "test_sql": "sql",
    "test_request_and_reply": "reply",
    "test_order_with_suspended_queues": "suspend",
}
SETTINGS = {
    "brokerName": NAME,
    "brokerIP1": "127.0.0.1",
    "messageDelayLevel": " ".join(["1s", "2s", "4s"] + ["1s"] * 15),
    "enablePropertyFilter": "true",
    "transactionCheckInterval": 1_000,
    "transactionTimeOut": 1_000,
    "transactionCheckMax": 100,  # Go's client shows itself to a new broker after 30 s
    "mappedFileSizeCommitLog": 16 << 20,
}


class Broker:
    """A broker that can be interrupted; its address and name server stay."""

    def __init__(self, folder, namesrv, how):
        self.namesrv, self._folder, self._how = namesrv, folder, how
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        self._settings = SETTINGS | {
            "listenPort": port, "storePathRootDir": folder / "store",
        }  # fmt: skip
        self._running = ExitStack()
        self._java = None
        self._start(of_java=how == "Java to rmq")

    def _start(self, *, of_java):
        if of_java:
            self._start_java()
        else:
            texts = (f"{name}={value}" for name, value in self._settings.items())
            arguments = broker_arguments(self._folder / "store", *texts)
            self._rmq = self._running.enter_context(
                serving(*arguments, "-n", self.namesrv)
            )

    def _start_java(self):
        settings = {
            **self._settings, "timerWheelEnable": "false", "namesrvAddr": self.namesrv,
        }  # fmt: skip
        self._java = self._running.enter_context(
            java_server(self._folder / "java", "broker.BrokerStartup", settings)
        )
        wait_until(self._is_java_known, "Java serves", 90)

    def _is_java_known(self):
        """Java serves before the name server hears of it, seconds on a busy machine."""
        is_known = is_served(self.address, self._java)
        return is_known and wire.route(self.namesrv, NAME) is not None

    def interrupt(self):
        """Do in the middle of a scenario what it is run with."""
        if self._how == "straight":
            return
        if self._how == "restart":
            assert self._rmq.stop() == 0
        elif self._java is not None:
            self._java.kill()
            self._java.wait()
        else:
            self._rmq.kill()
        self._start(of_java=self._how == "rmq to Java")

    def close(self):
        self._running.close()


@pytest.fixture(params=INTERRUPTIONS)
def how(request):
    return request.param


@pytest.fixture
def namesrv():
    with serving("namesrv", "--set", "listenPort=0") as running:
        yield running.namesrv


@pytest.fixture
def able(client, request):
    """A client that has what the scenario takes."""
    ability = NEEDS.get(request.function.__name__)
    if ability is not None:
        needs(client, ability)
    return client


@pytest.fixture
def broker(tmp_path, able, namesrv, how):
    if "Java" in how:
        prepared(JavaServers())
    made = Broker(tmp_path, namesrv, how)
    try:
        wire.make_topic(made.address, "T", QUEUES)
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module", params=CLIENTS, ids=lambda kind: kind().name)
def client(request):
    return prepared(request.param())


def pushing(client, home, broker, **options):
    options = {"group": "G", "heartbeat": 1_000, **options}
    texts = [f"{name}={value}" for name, value in options.items()]
    return driving(client, home, "push", broker.namesrv, "T", 0, *texts)


def stored(broker, topic, queues):
    return wire.pull(broker.address, topic, queues=queues)


def test_retry(client, broker, tmp_path, how):
    send(client, tmp_path, broker.namesrv, "T", COUNT)
    with pushing(client, tmp_path / "in", broker, fail=2) as consumer:
        consumer.wait_received(COUNT)
        broker.interrupt()
        consumer.wait(
            lambda: len(of_times(consumer, 2)) >= COUNT, "all came a third time"
        )
        consumer.finish()
    assert of_times(consumer, 2) == set(range(COUNT))
    assert set(consumer.digests) == set(digests(range(COUNT)))
    assert {row["times"] for row in consumer.of("received")} == {0, 1, 2}
    if "fail alone" in client.can:
        assert of_times(consumer, 1) == set(range(COUNT))
        if how == "straight":
            assert len(consumer.numbers) == 3 * COUNT


def of_times(consumer, times):
    return {row["number"] for row in consumer.of("received") if row["times"] == times}


def test_dead_letters(client, broker, tmp_path):
    send(client, tmp_path, broker.namesrv, "T", COUNT)
    with pushing(client, tmp_path / "in", broker, fail=99, max=1) as consumer:
        consumer.wait_received(COUNT)
        if isinstance(client, Node):  # it drops what it cannot give back for 10 s
            wait_until(lambda: len(given_back(broker)) >= COUNT, "all are given back")
        broker.interrupt()
        wait_until(lambda: len(dead_letters(broker)) == COUNT, "all are dead", 90)
        consumer.finish()
    assert dead_letters(broker) == set(digests(range(COUNT)))


def given_back(broker):
    """What waits to be delivered again, or was: levels 1 to 5."""
    return stored(broker, "SCHEDULE_TOPIC_XXXX", 5)


def dead_letters(broker):
    if wire.route(broker.namesrv, "%DLQ%G") is None:
        return set()
    return {digest_of_stored(record) for record in stored(broker, "%DLQ%G", 1)}


def test_delay(client, broker, tmp_path, how):
    with pushing(client, tmp_path / "in", broker) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, broker.namesrv, "T", COUNT, delay=3)
        assert not consumer.numbers
        broker.interrupt()
        consumer.wait_received(COUNT)
        consumer.finish()
    assert set(consumer.digests) == set(digests(range(COUNT)))
    ages = [row["age"] for row in consumer.of("received")]
    assert min(ages) >= 4_000
    if how == "straight":
        assert len(ages) == COUNT
        assert max(ages) < 6_000


def test_transactions(client, broker, tmp_path, how):
    expected = {number for number in range(COUNT) if number % 3 != 1}
    with ExitStack() as running:
        consumer = running.enter_context(pushing(client, tmp_path / "in", broker))
        consumer.wait_ready()  # a busy machine starts one after the other
        producer = running.enter_context(
            driving(
                client, tmp_path / "out", "send", broker.namesrv, "T", COUNT,
                "mode=transaction", "heartbeat=1000",
            )
        )  # fmt: skip
        producer.wait(lambda: bool(producer.of("sent")), "sent")
        broker.interrupt()
        consumer.wait_received(len(expected), 90)
        wait_until(lambda: not open_halves(broker), "no transaction is open", 90)
        assert producer.finish()["count"] == COUNT
        consumer.finish()
    assert set(consumer.digests) == set(digests(expected))
    checked = {row["number"] for row in producer.of("checked")}
    assert checked >= set(range(2, COUNT, 3))
    records = stored(broker, "T", QUEUES)
    commits = sorted(map(digest_of_stored, records))
    if "Java" in how:  # who goes on may not know yet what was ended, and asks again
        commits = sorted(set(commits))
    assert commits == digests(expected)
    if how == "straight":
        assert checked == set(range(2, COUNT, 3))
        assert len(consumer.numbers) == len(expected)


def open_halves(broker):
    """How many half messages nobody has ended, as the op queue tells."""
    group = "CID_RMQ_SYS_TRANS"
    done = wire.committed(broker.address, group, "RMQ_SYS_TRANS_HALF_TOPIC", 1)
    fields = {"topic": "RMQ_SYS_TRANS_HALF_TOPIC", "queueId": 0}
    answer = wire.call(broker.address, RequestCode.GET_MAX_OFFSET, fields)
    return int(answer.ext_fields["offset"]) - done


def test_sql(client, broker, tmp_path, how):
    sql = "number BETWEEN 10 AND 39 AND (TAGS = 'Tag1' OR name IS NULL)"
    expected = digests(range(10, 40, 3))
    with pushing(client, tmp_path / "in", broker, sql=sql) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, broker.namesrv, "T", 30)
        broker.interrupt()
        send(client, tmp_path, broker.namesrv, "T", COUNT - 30, first=30)
        consumer.wait_received(len(expected))
        consumer.finish()
    assert sorted(set(consumer.digests)) == expected
    if how == "straight":
        assert sorted(consumer.digests) == expected


def test_request_and_reply(client, broker, tmp_path):
    with pushing(client, tmp_path / "in", broker, reply="true") as consumer:
        consumer.wait_ready()
        for first in (0, 10):
            with driving(
                client, tmp_path / f"out{first}", "send", broker.namesrv, "T", 10,
                "mode=request", f"first={first}",
            ) as producer:  # fmt: skip
                assert producer.finish()["count"] == 10
            assert sorted(producer.digests) == digests(range(first, first + 10))
            if not first:
                broker.interrupt()
                wait_until(
                    lambda: len(wire.members(broker.address, "G")) == 1,
                    "the consumer is back",
                )
        consumer.finish()


def test_order_with_suspended_queues(client, broker, tmp_path):
    def sending(first):
        send(
            client, tmp_path, broker.namesrv, "T", COUNT // 2,
            first=first, mode="orderly", queues=QUEUES, broker=NAME,
        )  # fmt: skip

    with pushing(client, tmp_path / "in", broker, order="true", fail=1) as consumer:
        consumer.wait_ready()
        sending(0)
        consumer.wait_received(COUNT // 4)
        broker.interrupt()
        sending(COUNT // 2)
        consumer.wait_received(COUNT, 100)
        consumer.finish()
    assert set(consumer.digests) == set(digests(range(COUNT)))
    for queue in range(QUEUES):
        numbers = [r["number"] for r in consumer.of("received") if r["queue"] == queue]
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), f"queue {queue} in another order: {numbers}"


@pytest.mark.parametrize("client", [Java], indirect=True, ids=["Java"])
@pytest.mark.parametrize("how", ["straight"])
def test_what_tools_ask_of_a_consumer(client, broker, tmp_path):
    with pushing(client, tmp_path / "in", broker) as consumer:
        consumer.wait_ready()
        send(client, tmp_path, broker.namesrv, "T", COUNT)
        consumer.wait_received(COUNT)
        (member,) = wire.members(broker.address, "G")
        asked = {"consumerGroup": "G", "clientId": member}
        info = wire.call(
            broker.address, RequestCode.GET_CONSUMER_RUNNING_INFO,
            {**asked, "jstackEnable": "true"},
        )  # fmt: skip
        assert info.code == 0, info.remark
        assert b'"jstack"' in info.body
        record = stored(broker, "T", QUEUES)[0]
        direct = wire.call(
            broker.address, RequestCode.CONSUME_MESSAGE_DIRECTLY,
            {**asked, "msgId": record.offset_msg_id, "topic": "T"},
        )  # fmt: skip
        assert json.loads(direct.body)["consumeResult"] == "CR_SUCCESS"
        assert consumer.digests.count(digest_of_stored(record)) == 2
        fields = {"topic": "T", "group": "G"}
        status = wire.call(
            broker.address, RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, fields
        )
        table = GetConsumerStatusBody.decode(status.body).consumer_table[member]
        assert sum(table.values()) == COUNT
        reset = wire.call(
            broker.address, RequestCode.INVOKE_BROKER_TO_RESET_OFFSET,
            {**fields, "timestamp": 0, "isForce": "true"},
        )  # fmt: skip
        assert reset.code == 0, reset.remark
        consumer.wait(
            lambda: len(consumer.numbers) == 2 * COUNT + 1, "all messages once more"
        )
        consumer.finish()
    assert sorted(set(consumer.digests)) == digests(range(COUNT))
