"""Messages of a topic without route or connection wait in one task."""

import pytest
import trio
import trio.testing

from rmq._fastpath.client.messages import Delivery, SendResult
from rmq._fastpath.client.packing import PackedMessage
from rmq.client import Message, Producer
from rmq.client.core.routes import MessageQueue
from rmq.client.errors import (
    NameServerUnreachable,
    NoRoute,
    SendFailed,
    SendRefused,
)
from rmq.client.route_waiters import RouteWaiters, Waiting
from rmq.outgoing.connection import steady_ms
from tests.client.test_producer import stored

RESULT = SendResult(0, "id", "offset id", None, 7)


def delivery(topic="T"):
    return Delivery(PackedMessage(topic, "id", b"", b"", 0, True), None, None)


class DirectSends:
    """What a producer does with its messages; `outcome` is that of the long way."""

    def __init__(self, nursery, outcome=RESULT):
        self.outcome, self.long, self.now, self.tasks = outcome, [], [], 0
        self.nursery, self.is_open = nursery, trio.Event()
        self.opening = RouteWaiters(self.deliver, self.send_now, self.spawn)

    def spawn(self, function, *arguments):
        self.tasks += 1
        self.nursery.start_soon(function, *arguments)

    async def deliver(self, each):
        each = each.delivery
        self.long.append(each)
        await self.is_open.wait()
        end = each.set_result if self.outcome is RESULT else each.set_exception
        end(self.outcome)

    def send_now(self, each):
        self.now.append(each.delivery)
        each.delivery.set_result(RESULT)

    def add(self, each, left_ms=10_000):
        self.opening.add(Waiting(each, steady_ms() + left_ms))


async def test_the_first_opens_the_way_for_the_others(nursery):
    ways = DirectSends(nursery)
    all_ = [delivery() for _ in range(1_000)]
    for each in all_:
        ways.add(each)
    ways.add(other := delivery("U"))
    assert ways.tasks == 2
    await trio.testing.wait_all_tasks_blocked()
    assert set(ways.long) == {all_[0], other}
    ways.is_open.set()
    await trio.testing.wait_all_tasks_blocked()
    assert len(ways.long) == 2
    assert ways.now == all_[1:]
    ways.add(delivery())
    assert ways.tasks == 3


def unknown_topic():
    return NoRoute("T", ["n:1"], "no broker has it", is_unknown=True)


def sent_once_to_an_unknown_topic():
    failure = SendFailed("it may be stored", "T", None, 0)
    failure.__cause__ = unknown_topic()
    return failure


@pytest.mark.parametrize("fail", [unknown_topic, sent_once_to_an_unknown_topic])
async def test_the_others_share_a_failure(nursery, fail):
    ways = DirectSends(nursery, fail())
    all_ = [delivery() for _ in range(4)]
    for each in all_[:3]:
        ways.add(each)
    await trio.testing.wait_all_tasks_blocked()
    ways.add(all_[3])  # after the attempt began: it has one of its own
    ways.is_open.set()
    await trio.testing.wait_all_tasks_blocked()
    assert ways.now == []
    assert ways.long == [all_[0], all_[3]]
    assert isinstance(all_[0].exception(), type(fail()))
    for each in all_[1:3]:
        error = each.exception()
        assert isinstance(error, SendFailed)
        assert "an earlier message failed: " in str(error)
        assert not error.may_be_stored
    assert isinstance(all_[3].exception(), type(fail()))


async def test_those_with_time_left_wait_on(nursery):
    ways = DirectSends(nursery, NameServerUnreachable(["n:1"], "it is away"))
    first, late, patient = all_ = [delivery() for _ in range(3)]
    for each, left_ms in zip(all_, (10_000, -1, 10_000), strict=True):
        ways.add(each, left_ms)
    ways.is_open.set()
    await trio.testing.wait_all_tasks_blocked()
    assert ways.long == [first, patient]
    assert isinstance(late.exception().__cause__, NameServerUnreachable)


async def test_a_refusal_is_of_one_message_only(nursery):
    queue = MessageQueue("T", "b", 0)
    ways = DirectSends(nursery, SendRefused(queue, "b:1", 1, 13, "it is too large"))
    all_ = [delivery() for _ in range(3)]
    for each in all_:
        ways.add(each)
    ways.is_open.set()
    await trio.testing.wait_all_tasks_blocked()
    assert ways.now == all_[1:]


async def test_the_end_of_the_client_ends_them():
    async with trio.open_nursery() as inner:
        ways = DirectSends(inner)
        all_ = [delivery() for _ in range(3)]
        for each in all_:
            ways.add(each)
        await trio.testing.wait_all_tasks_blocked()
        inner.cancel_scope.cancel()
    assert [each.done() for each in all_[1:]] == [True, True]


def test_a_new_producer_starts_one_task(broker, loop):
    """It was one for each message: 10,000 of them before the connection was there."""
    topic = f"opening-{loop.name}"
    spawned = []

    class Counted(Producer):
        def _spawn(self, *what):
            spawned.append(what)
            super()._spawn(*what)

    async def scenario():
        async with Counted(broker.name_server) as producer:
            before = len(spawned)
            for number in range(500):
                await producer.enqueue(Message(topic, b"%d" % number))
            await producer.flush()
            return len(spawned) - before

    assert loop(scenario) == 1
    assert len(stored(broker, topic)) == 500
