"""Java's client and what a broker does later: retries, delays, transactions, replies.

Each scenario runs straight, with a clean restart in the middle, and with a kill.
Interrupted, a message may come more than once; without, it comes as often as expected.
"""

import json
from contextlib import ExitStack

import pytest

from rmq.protocol.bodies.queues import GetConsumerStatusBody
from rmq.protocol.codes import RequestCode

from . import wire
from .conftest import prepared
from .drivers import driving, eventually, send
from .messages import digest_of_stored, digests
from .processes import Server, broker_arguments, free_port
from .toolchains import Java

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]

NAME = "broker-delivery"
QUEUES = 4
COUNT = 60
INTERRUPTIONS = ("straight", "restart", "kill")
SETTINGS = (
    f"brokerName={NAME}",
    "messageDelayLevel=" + " ".join(["1s", "2s", "4s"] + ["1s"] * 15),
    "enablePropertyFilter=true",
    "transactionCheckInterval=1000",
    "transactionTimeOut=1000",
)


class Broker:
    """A broker that can be interrupted; addresses stay."""

    def __init__(self, folder):
        ports = [free_port(), free_port()]
        self._arguments = broker_arguments(
            folder, *SETTINGS,
            f"listenPort={ports[0]}", f"rmq.namesrv.listenPort={ports[1]}",
        )  # fmt: skip
        self.start()

    def start(self):
        self.server = Server(*self._arguments)
        self.address, self.namesrv = self.server.address, self.server.namesrv

    def interrupt(self, how):
        if how == "kill":
            self.server.kill()
        elif how == "restart":
            assert self.server.stop() == 0
        if how != "straight":
            self.start()


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path / "store")
    wire.make_topic(made.address, "T", QUEUES)
    yield made
    if made.server.is_running:
        made.server.kill()


@pytest.fixture(scope="module")
def java():
    return prepared(Java())


@pytest.fixture(params=INTERRUPTIONS)
def how(request):
    return request.param


def pushing(java, home, broker, **options):
    options = {"group": "G", "heartbeat": 1_000, **options}
    texts = [f"{name}={value}" for name, value in options.items()]
    return driving(java, home, "push", broker.namesrv, "T", 0, *texts)


def stored(broker, topic, queues):
    return wire.pull(broker.address, topic, queues=queues)


def test_retry(java, broker, tmp_path, how):
    send(java, tmp_path, broker.namesrv, "T", COUNT)
    with pushing(java, tmp_path / "in", broker, fail=2) as consumer:
        consumer.wait_received(COUNT)
        broker.interrupt(how)
        consumer.wait(
            lambda: len(of_times(consumer, 2)) >= COUNT, "all came a third time"
        )
        consumer.finish()
    assert of_times(consumer, 2) == of_times(consumer, 1) == set(range(COUNT))
    assert set(consumer.digests) == set(digests(range(COUNT)))
    assert {row["times"] for row in consumer.of("received")} == {0, 1, 2}
    if how == "straight":
        assert len(consumer.numbers) == 3 * COUNT


def of_times(consumer, times):
    return {row["number"] for row in consumer.of("received") if row["times"] == times}


def test_dead_letters(java, broker, tmp_path, how):
    send(java, tmp_path, broker.namesrv, "T", COUNT)
    with pushing(java, tmp_path / "in", broker, fail=99, max=1) as consumer:
        consumer.wait_received(COUNT)
        broker.interrupt(how)
        eventually(lambda: len(dead_letters(broker)) == COUNT, "all messages are dead")
        consumer.finish()
    assert dead_letters(broker) == set(digests(range(COUNT)))


def dead_letters(broker):
    if wire.route(broker.namesrv, "%DLQ%G") is None:
        return set()
    return {digest_of_stored(record) for record in stored(broker, "%DLQ%G", 1)}


def test_delay(java, broker, tmp_path, how):
    with pushing(java, tmp_path / "in", broker) as consumer:
        consumer.wait_ready()
        send(java, tmp_path, broker.namesrv, "T", COUNT, delay=3)
        assert not consumer.numbers
        broker.interrupt(how)
        consumer.wait_received(COUNT)
        consumer.finish()
    assert set(consumer.digests) == set(digests(range(COUNT)))
    ages = [row["age"] for row in consumer.of("received")]
    assert min(ages) >= 4_000
    if how == "straight":
        assert len(ages) == COUNT
        assert max(ages) < 6_000


def test_transactions(java, broker, tmp_path, how):
    expected = {number for number in range(COUNT) if number % 3 != 1}
    with ExitStack() as running:
        consumer = running.enter_context(pushing(java, tmp_path / "in", broker))
        consumer.wait_ready()  # a busy machine starts one after the other
        producer = running.enter_context(
            driving(
                java, tmp_path / "out", "send", broker.namesrv, "T", COUNT,
                "mode=transaction", "heartbeat=1000",
            )
        )  # fmt: skip
        producer.wait(lambda: bool(producer.of("sent")), "sent")
        broker.interrupt(how)
        consumer.wait_received(len(expected), 90)
        eventually(lambda: not open_halves(broker), "no transaction is open")
        assert producer.finish()["count"] == COUNT
        consumer.finish()
    assert set(consumer.digests) == set(digests(expected))
    checked = {row["number"] for row in producer.of("checked")}
    assert checked >= set(range(2, COUNT, 3))
    records = stored(broker, "T", QUEUES)
    assert sorted(map(digest_of_stored, records)) == digests(expected)
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


def test_sql(java, broker, tmp_path, how):
    sql = "number BETWEEN 10 AND 39 AND (TAGS = 'Tag1' OR name IS NULL)"
    expected = digests(range(10, 40, 3))
    with pushing(java, tmp_path / "in", broker, sql=sql) as consumer:
        consumer.wait_ready()
        send(java, tmp_path, broker.namesrv, "T", 30)
        broker.interrupt(how)
        send(java, tmp_path, broker.namesrv, "T", COUNT - 30, first=30)
        consumer.wait_received(len(expected))
        consumer.finish()
    assert sorted(set(consumer.digests)) == expected
    if how == "straight":
        assert sorted(consumer.digests) == expected


def test_request_and_reply(java, broker, tmp_path, how):
    with pushing(java, tmp_path / "in", broker, reply="true") as consumer:
        consumer.wait_ready()
        for first in (0, 10):
            with driving(
                java, tmp_path / f"out{first}", "send", broker.namesrv, "T", 10,
                "mode=request", f"first={first}",
            ) as producer:  # fmt: skip
                assert producer.finish()["count"] == 10
            assert sorted(producer.digests) == digests(range(first, first + 10))
            if not first:
                broker.interrupt(how)
                eventually(
                    lambda: len(wire.members(broker.address, "G")) == 1,
                    "the consumer is back",
                )
        consumer.finish()


def test_order_with_suspended_queues(java, broker, tmp_path, how):
    def sending(first):
        send(
            java, tmp_path, broker.namesrv, "T", COUNT // 2,
            first=first, mode="orderly", queues=QUEUES,
        )  # fmt: skip

    with pushing(java, tmp_path / "in", broker, order="true", fail=1) as consumer:
        consumer.wait_ready()
        sending(0)
        consumer.wait_received(COUNT // 4)
        broker.interrupt(how)
        sending(COUNT // 2)
        consumer.wait_received(COUNT, 100)
        consumer.finish()
    assert set(consumer.digests) == set(digests(range(COUNT)))
    for queue in range(QUEUES):
        numbers = [r["number"] for r in consumer.of("received") if r["queue"] == queue]
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts), f"queue {queue} in another order: {numbers}"


def test_what_tools_ask_of_a_consumer(java, broker, tmp_path):
    with pushing(java, tmp_path / "in", broker) as consumer:
        consumer.wait_ready()
        send(java, tmp_path, broker.namesrv, "T", COUNT)
        consumer.wait_received(COUNT)
        (client,) = wire.members(broker.address, "G")
        asked = {"consumerGroup": "G", "clientId": client}
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
        table = GetConsumerStatusBody.decode(status.body).consumer_table[client]
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
