"""Lite topics: the Java SDK's LitePushConsumer through Java's unmodified proxy.

RMQ_INTEROP_BROKER=java puts Java's own servers there, to see whose fault a failure is.
"""

from collections import defaultdict

import pytest

from rmq.protocol.codes import RequestCode, ResponseCode
from tests.waiting import wait_until

from . import wire
from .conftest import prepared
from .five import JavaSdk, group_body
from .messages import digests
from .stages import (
    COUNT,
    QUEUES,
    SETTINGS,
    Stage,
    proxy_over,
    servers_below,
    settled,
    stage_name,
)

pytestmark = [pytest.mark.interop, pytest.mark.timeout(240, func_only=True)]

LMQ = {"enableLmq": "true", "enableMultiDispatch": "true"}
LITES = [f"lite{number}" for number in range(4)]


@pytest.fixture(scope="module")
def client():
    return prepared(JavaSdk())


@pytest.fixture(scope="module")
def below(tmp_path_factory):
    with servers_below(tmp_path_factory.mktemp("broker"), SETTINGS | LMQ) as made:
        yield made


@pytest.fixture(scope="module")
def proxy(below, tmp_path_factory):
    with proxy_over(below, tmp_path_factory.mktemp("proxy")) as made:
        yield made


class LiteStage(Stage):
    """A parent topic and a group bound to it."""

    def make(self, **attributes):
        address = self.below.address
        wire.make_topic(address, self.name, QUEUES, "+message.type=LITE")
        texts = {"+lite.bind.topic": self.name} | {
            f"+{name.replace('_', '.')}": text for name, text in attributes.items()
        }
        body = group_body(self.name, attributes=texts)
        code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
        answer = wire.call(address, code, body=body)
        assert answer.code == ResponseCode.SUCCESS, answer.remark

    def taking(self, *lites, **options):
        more = {"group": self.name, "lites": ",".join(lites), **options}
        return self._driving("lite", COUNT, more)

    def committed_of(self, lite):
        queue = f"%LMQ%${self.name}${lite}"
        return wire.committed(self.below.address, self.name, queue, 1)


@pytest.fixture
def stage(client, proxy, below, tmp_path, request):
    return LiteStage(client, proxy, below, tmp_path, stage_name(request))


def in_order(consumer):
    """Numbers by lite topic, each where it came first."""
    found = defaultdict(list)
    for number in consumer.numbers:
        if number not in found[number % 4]:
            found[number % 4].append(number)
    return found


def test_each_consumer_gets_its_lite_topics_in_order(stage):
    stage.make()
    with stage.taking("lite0", "lite1") as one, stage.taking("lite2", "lite3") as other:
        settled(one)
        settled(other)
        stage.send(kind="lite")
        one.wait_received(COUNT // 2)
        other.wait_received(COUNT // 2)
        wait_until(
            lambda: [stage.committed_of(name) for name in LITES] == [COUNT // 4] * 4,
            "all acked",
            15,
        )
        one.finish()
        other.finish()
    for consumer, mine in (one, (0, 1)), (other, (2, 3)):
        found = in_order(consumer)
        assert found == {first: list(range(first, COUNT, 4)) for first in mine}
    both = sorted(one.digests + other.digests)
    assert both == digests(range(COUNT))


def test_failure_is_delivered_again(stage):
    """After a minute, the invisible time of the SDK's lite consumers."""
    stage.make()
    with stage.taking(*LITES, fail=1) as consumer:
        settled(consumer)
        stage.send(4, kind="lite")
        consumer.wait(lambda: len(consumer.numbers) == 8, "each came twice", 100)
        wait_until(
            lambda: [stage.committed_of(name) for name in LITES] == [1] * 4, "acked", 30
        )
    attempts = defaultdict(list)
    for each in consumer.of("received"):
        attempts[each["number"]].append(each["attempt"])
    assert attempts == {number: [1, 2] for number in range(4)}


def test_exclusive_group_evicts_the_one_before(stage):
    stage.make(lite_sub_model="Exclusive")
    with stage.taking("lite0", "lite1") as one:
        settled(one)
        with stage.taking("lite0", "lite2") as other:
            settled(other)
            stage.send(12, kind="lite")
            other.wait_received(6)
            one.wait_received(3)
            other.finish()
        one.finish()
    assert {number % 4 for number in one.numbers} == {1}
    assert {number % 4 for number in other.numbers} == {0, 2}
    assert [each["lites"] for each in one.of("taken")] == ["lite1"]


def test_wildcard_group_takes_every_lite_topic(stage):
    stage.make(lite_sub_wildcard="true")
    with stage.taking() as consumer:
        settled(consumer)
        stage.send(kind="lite")
        consumer.wait_received(COUNT, 90)
    assert sorted(set(consumer.digests)) == digests(range(COUNT))


def test_messages_from_before_the_subscription(stage):
    stage.make()
    stage.send(kind="lite")
    with stage.taking(*LITES) as consumer:
        settled(consumer)
        consumer.wait_received(COUNT)
    assert in_order(consumer) == {
        first: list(range(first, COUNT, 4)) for first in range(4)
    }


def test_restart_of_the_broker(stage):
    """The proxy sends the subscriptions again; nothing that was acked comes again."""
    stage.make()
    with stage.taking(*LITES) as consumer:
        settled(consumer)
        stage.send(20, kind="lite")
        consumer.wait_received(20)
        done = [5] * 4
        wait_until(
            lambda: [stage.committed_of(name) for name in LITES] == done, "acked", 15
        )
        stage.below.stop()
        stage.below.start()
        wait_until(lambda: wire.route(stage.below.namesrv, stage.name), "registered")
        stage.send(20, kind="lite", first=20, retry=1)
        consumer.wait_received(40, 90)
    assert len(consumer.numbers) == 40
