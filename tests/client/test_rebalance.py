"""Members of a group come and go: every message arrives, in order if it is to."""

import random
from collections import Counter

import anyio
import pytest

from rmq.client import Client, Consumer, Message, Producer, assigned_queue

QUEUES = 40
MESSAGES = 3_000


@pytest.mark.slow
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_members_come_and_go(broker, loop, ordered):
    topic = f"shared-{loop.name}-{ordered}"
    broker.create_topic(topic, QUEUES)
    chance = random.Random(7)
    seen: Counter[bytes] = Counter()
    order: dict[int, list[int]] = {}

    async def handle(message):
        seen[message.body] += 1
        order.setdefault(message.queue.queue_id, []).append(message.queue_offset)
        await anyio.sleep(0.0005)

    async def member(life_s):
        async with (
            Client(broker.name_server) as client,
            Consumer(client, topic, topic, start="first", ordered=ordered) as consumer,
        ):
            with anyio.move_on_after(life_s):
                await consumer.run(handle, concurrency=4)

    async def scenario():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_all)
            for _ in range(12):
                tasks.start_soon(member, chance.uniform(0.2, 1.5))
                await anyio.sleep(chance.uniform(0.02, 0.15))
        async with Consumer(
            broker.name_server, topic, topic, start="first", ordered=ordered
        ) as last:

            async def until_all():
                while len(seen) < MESSAGES:  # noqa: ASYNC110 - a test
                    await anyio.sleep(0.02)
                last.stop()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(until_all)
                tasks.start_soon(last.run, handle)

    async def send_all():
        async with Producer(broker.name_server) as producer:
            for start in range(0, MESSAGES, 20):
                part = range(start, start + 20)
                await producer.send_many(Message(topic, b"%d" % i) for i in part)
                await anyio.sleep(0.005)

    loop(scenario)
    assert len(seen) == MESSAGES
    if ordered:
        for offsets in order.values():
            firsts = list(dict.fromkeys(offsets))
            assert firsts == sorted(firsts)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("ordered", [False, True], ids=["concurrent", "ordered"])
def test_fifty_members_over_two_hundred_queues(broker, loop, ordered):
    """Members leave all the time, half of them cancelled; others take their seats."""
    loop.limit_s = 240
    topic = f"crowd-{loop.name}-{ordered}"
    broker.create_topic(topic, 200)
    offsets = broker.node.broker.context.offsets
    chance = random.Random(7)
    seen: Counter[bytes] = Counter()
    order: dict[int, list[int]] = {}
    committed = [-1] * 200
    left = 0

    async def member():
        nonlocal left
        wanted, is_cancelled = chance.randrange(20, 200), chance.random() < 0.5
        scope = anyio.CancelScope()

        async def handle(message):
            nonlocal wanted
            seen[message.body] += 1
            order.setdefault(message.queue.queue_id, []).append(message.queue_offset)
            wanted -= 1
            if wanted == 0:
                scope.cancel() if is_cancelled else consumer.stop()
            await anyio.sleep(0.001)

        async with (
            Client(broker.name_server) as client,
            Consumer(client, topic, topic, start="first", ordered=ordered) as consumer,
        ):
            with scope:
                await consumer.run(handle, concurrency=4)
        left += 1

    async def seat():
        while True:
            await member()

    async def send_all():
        async with Producer(broker.name_server) as producer:
            queues = (await producer.client.route(topic)).writable
            for start in range(50):
                for queue in queues:
                    body = b"%d %d" % (queue.queue_id, start)
                    await producer.send(Message(topic, body), queue=queue)

    async def scenario():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(send_all)
            for _ in range(50):
                tasks.start_soon(seat)
            while len(seen) < 200 * 50:
                await anyio.sleep(0.05)
                for number, before in enumerate(committed):
                    now = offsets.query(topic, topic, number)
                    assert now >= before or not ordered
                    committed[number] = now
            tasks.cancel_scope.cancel()

    loop(scenario)
    assert left > 50
    if ordered:
        for places in order.values():
            firsts = list(dict.fromkeys(places))
            assert firsts == sorted(firsts)


def test_a_member_that_is_cancelled_while_it_joins_leaves_no_locks(broker, loop):
    topic = f"left-{loop.name}"
    broker.create_topic(topic, QUEUES)
    locks = broker.node.broker.context.queue_locks

    async def join():
        options = {"start": "first", "ordered": True}
        async with Consumer(broker.name_server, topic, topic, **options) as consumer:
            mine = [each for each in consumer.assignment() if each.topic == topic]
            assert len(mine) == QUEUES

    async def scenario():
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(join)
            while not locks.is_orderly(topic):
                await anyio.lowlevel.checkpoint()
            tasks.cancel_scope.cancel()
        assert not locks.is_orderly(topic)
        await join()

    loop(scenario)


def test_an_ordered_consumer_of_given_queues_needs_no_locks(broker, loop, monkeypatch):
    topic = f"unlocked-{loop.name}"
    broker.create_topic(topic, 1)
    broker.send(topic, b"x")
    monkeypatch.setattr(assigned_queue, "LOCK_VALID_MS", -1)

    async def scenario():
        async with Consumer(broker.name_server, topic, ordered=True) as consumer:
            queues = await consumer.queues(topic)
            consumer.assign(queues)
            await consumer.seek(queues[0], "first")
            assert len(await consumer.fetch()) == 1

    loop(scenario)
