"""Groups that a broker has set to POP, against a real broker."""

import itertools
import json

import anyio
import pytest
from anyio.to_thread import run_sync as in_thread

from rmq.client import Consumer, Message, Producer
from rmq.core.errors import ConfigError
from rmq.protocol.bodies.queues import SetMessageRequestModeRequestBody
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.topics import dlq_topic

numbers = itertools.count()


@pytest.fixture
def topic(broker, loop):
    name = f"popped-{loop.name}-{next(numbers)}"
    broker.create_topic(name, 4)
    return name


def set_mode(broker, topic, mode, share=-1):
    group = f"g-{topic}"
    create = {"groupName": group, "retryQueueNums": 1, "retryMaxTimes": 16}
    body = json.dumps(create).encode()
    code = RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    assert broker.request(Command.request(code, body=body)).code == 0
    wanted = SetMessageRequestModeRequestBody(
        topic=topic, consumer_group=group, mode=mode, pop_share_queue_num=share
    )
    code = RequestCode.SET_MESSAGE_REQUEST_MODE
    assert broker.request(Command.request(code, body=wanted.encode())).code == 0


def fill(broker, topic, count, **fields):
    for number in range(count):
        broker.send(topic, b"%d" % number, queue_id=number % 4, **fields)


def consumer(broker, topic, wanted=None, **options):
    subscribed = {topic: wanted or "*"}
    options = {"start": "first", **options}
    return Consumer(broker.name_server, f"g-{topic}", subscribed, **options)


def popped(it, topic):
    return [each.queue_id for each in it.assignment() if each.topic == topic]


async def take(it, count):
    return [await anext(it) for _ in range(count)]


def test_members_share_what_they_pop(broker, loop, topic):
    set_mode(broker, topic, "POP")

    async def scenario():
        async with (
            Producer(broker.name_server) as producer,
            consumer(broker, topic) as one,
            consumer(broker, topic) as two,
        ):
            assert popped(one, topic) == popped(two, topic) == [-1]
            seen = []

            def handle(message):
                assert message.topic == message.queue.topic == topic
                seen.append(message.body)
                if len(seen) == 40:
                    one.stop()
                    two.stop()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(one.run, handle)
                tasks.start_soon(two.run, handle)
                for number in range(40):
                    await producer.send(Message(topic, b"%d" % number))
        assert sorted(seen, key=int) == [b"%d" % number for number in range(40)]

    loop(scenario)


@pytest.mark.slow
def test_what_is_acknowledged_is_gone_and_the_rest_comes_soon(broker, loop, topic):
    set_mode(broker, topic, "POP")
    fill(broker, topic, 12)

    async def scenario():
        async with consumer(broker, topic) as it:
            first = {each.body for each in await take(it, 5)}
        async with consumer(broker, topic) as it:
            later = {each.body for each in await take(it, 7)}
        assert first | later == {b"%d" % number for number in range(12)}

    loop(scenario)


def test_a_tag_that_is_not_wanted_is_acknowledged(broker, loop, topic):
    set_mode(broker, topic, "POP")
    for tags in ("meat", "fruit", "meat", "bread"):
        broker.send(topic, tags.encode(), tags=tags)

    async def scenario():
        async with consumer(broker, topic, "fruit || bread") as it:
            assert {each.body for each in await take(it, 2)} == {b"fruit", b"bread"}

    loop(scenario)


@pytest.mark.slow
def test_a_popped_failure_comes_again_and_at_last_is_dead(broker, loop, topic):
    set_mode(broker, topic, "POP")
    fill(broker, topic, 1)

    async def scenario():
        attempts = []
        async with consumer(broker, topic, max_attempts=2) as it:
            async for message in it.deliveries():
                attempts.append(message.attempt)
                await message.nack(delay_s=1)
                if len(attempts) == 3:
                    break
        assert attempts == [1, 2, 3]

    loop(scenario)
    dead = broker.messages(dlq_topic(f"g-{topic}"))
    assert [each.body for each in dead] == [b"0"]


@pytest.mark.slow
def test_a_long_handler_gets_more_time(broker, loop, topic):
    set_mode(broker, topic, "POP")
    fill(broker, topic, 3)

    async def scenario():
        seen = []

        async def handle(message):
            seen.append(message.body)
            await anyio.sleep(5)
            if len(seen) == 3:
                it.stop()

        async with consumer(broker, topic, invisible_s=3) as it:
            await it.run(handle)
        assert sorted(seen) == [b"0", b"1", b"2"]

    loop(scenario)
    assert broker.messages(f"%RETRY%g-{topic}_{topic}") == []


def test_an_acknowledgement_after_the_time_does_not_count(broker, loop, topic):
    set_mode(broker, topic, "POP")
    fill(broker, topic, 1)

    async def scenario():
        async with consumer(broker, topic) as it:
            message = await anext(it.deliveries())
            is_acked = message.ack()
            assert is_acked
            is_acked = message.ack()
            assert not is_acked
            again = await message.nack()
            assert again is None

    loop(scenario)


@pytest.mark.slow
def test_a_consumer_that_acknowledges_nothing_is_bounded(broker, loop, topic):
    set_mode(broker, topic, "POP")
    fill(broker, topic, 200)

    async def scenario():
        async with consumer(broker, topic) as it:
            taken, messages = [], it.deliveries()
            while len(taken) < 96:
                taken.append(await anext(messages))
            while not it.puller.blocked:
                await anyio.lowlevel.checkpoint()
            assert it.puller.count < 96 + 32
            for message in taken:
                is_acked = message.ack()
                assert is_acked
            while len(taken) < 200:
                taken.append(await anext(messages))
                is_acked = taken[-1].ack()
                assert is_acked
            assert len({each.body for each in taken}) == 200

    loop(scenario)


def test_a_group_may_be_set_back_to_pulls(broker, loop, topic):
    set_mode(broker, topic, "POP")

    async def scenario():
        async with consumer(broker, topic) as it:
            await in_thread(set_mode, broker, topic, "PULL")
            it.rebalance.trigger()
            while popped(it, topic) != [0, 1, 2, 3]:
                await anyio.lowlevel.checkpoint()
            await in_thread(fill, broker, topic, 4)
            assert len(await take(it, 4)) == 4

    loop(scenario)


@pytest.mark.slow
def test_what_failed_before_comes_by_pulls_after_the_group_is_set_back(
    broker, loop, topic
):
    """As by Java's clients, which then subscribe to the retry topic of POP."""
    set_mode(broker, topic, "POP")
    fill(broker, topic, 4)

    retries = f"%RETRY%g-{topic}_{topic}"

    async def scenario():
        async with consumer(broker, topic) as it:
            popped_now = [await anext(it.deliveries()) for _ in range(4)]
            acks = [each.ack() for each in popped_now if each.body != b"0"]
            assert all(acks)
        while not await in_thread(broker.messages, retries):  # noqa: ASYNC110 - a test
            await anyio.sleep(0.05)
        await in_thread(set_mode, broker, topic, "PULL")
        async with consumer(broker, topic) as it:
            messages = it.deliveries()
            again = await anext(messages)
            while again.queue.topic == topic:  # POP had not yet committed it
                is_acked = again.ack()
                assert is_acked
                again = await anext(messages)
            assert (again.body, again.topic, again.attempt) == (b"0", topic, 2)
            assert again.queue.topic == retries
            await again.nack()
            again = await anext(messages)
            assert (again.body, again.topic, again.attempt) == (b"0", topic, 3)
            is_acked = again.ack()
            assert is_acked
            await in_thread(set_mode, broker, topic, "POP")
            it.rebalance.trigger()
            while popped(it, topic) != [-1]:
                await anyio.lowlevel.checkpoint()
            assert {each.topic for each in it.assignment()} <= {
                topic, f"%RETRY%g-{topic}"
            }  # fmt: skip

    loop(scenario)


def test_a_consumer_may_insist(broker, loop, topic):
    async def scenario():
        async with consumer(broker, topic, mode="pop") as it:
            assert popped(it, topic) == [-1]
        await in_thread(set_mode, broker, topic, "POP")
        async with consumer(broker, topic, mode="pull") as it:
            assert popped(it, topic) == [0, 1, 2, 3]

    loop(scenario)


@pytest.mark.parametrize("options", [{"ordered": True}, {"broadcast": True}])
def test_order_and_broadcast_pull(options):
    with pytest.raises(ConfigError, match="mode: "):
        Consumer("127.0.0.1:1", "g", "T", mode="pop", **options)
