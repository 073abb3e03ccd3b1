"""The 5.x SDKs: at rmq itself, and through Java's unmodified proxy in front of it.

RMQ_INTEROP_BROKER=java puts Java's own servers there, to see whose fault a failure is.
"""

import time
from collections import defaultdict

import pytest

from tests.waiting import wait_until

from . import wire
from .conftest import needs, prepared
from .five import SDKS
from .messages import digests
from .stages import (
    COUNT,
    Itself,
    Stage,
    itself,
    proxy_over,
    servers_below,
    settled,
    stage_name,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240, func_only=True)]

DELAY_MS = 6_000
LATE_MS = 5_000
ON_THE_WAY_MS = 2_000
"""From the broker, where the time begins, to a client on a busy machine."""

RECALL_MS = 10_000


@pytest.fixture(scope="module", params=SDKS, ids=lambda kind: kind().name)
def client(request):
    """Each of the SDKs, installed."""
    return prepared(request.param())


@pytest.fixture(scope="module")
def below(tmp_path_factory):
    with servers_below(tmp_path_factory.mktemp("broker")) as made:
        yield made


@pytest.fixture(scope="module", params=["itself", "proxy"])
def proxy(below, tmp_path_factory, request):
    """The server that speaks gRPC: the broker itself, or Java's proxy."""
    if request.param == "itself":
        yield itself(below)
        return
    with proxy_over(below, tmp_path_factory.mktemp("proxy")) as made:
        yield made


@pytest.fixture
def stage(client, proxy, below, tmp_path, request):
    return Stage(client, proxy, below, tmp_path, stage_name(request))


def test_push(stage, client):
    needs(client, "push")
    stage.make()
    with stage.consuming() as consumer:
        settled(consumer)
        stage.send()
        consumer.wait_received(COUNT)
        wait_until(lambda: stage.committed == COUNT, "all acked", 15)
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
    wait_until(lambda: stage.committed == COUNT, "all acks reached the broker", 15)


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
        wait_until(lambda: stage.committed >= count, "all acked", 30)
    assert sorted(set(consumer.digests)) == digests(range(count))


def test_dead_letters(stage, client):
    needs(client, "dead letters")
    stage.make(retryMaxTimes=1)
    count = 10
    with stage.consuming(fail=99) as consumer:
        settled(consumer)
        stage.send(count)
        dead = f"%DLQ%{stage.name}"
        wait_until(lambda: len(records(stage, dead)) == count, "all given up")
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
    if what == "proxy" and isinstance(proxy, Itself):
        pytest.skip("there is no proxy")
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
