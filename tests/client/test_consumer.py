"""Consumers against a real broker, under asyncio and trio."""

import itertools
import time
from datetime import UTC, datetime, timedelta

import anyio
import anyio.to_thread
import pytest

from rmq.client import (
    Client,
    ClientClosed,
    Consumer,
    FileOffsets,
    Message,
    NoRoute,
    NotAssigned,
    Producer,
    Sql,
    SubscriptionRefused,
)
from rmq.core.errors import ConfigError
from rmq.protocol.topics import dlq_topic
from rmq.testing import BrokerThread

numbers = itertools.count()


@pytest.fixture
def topic(broker, loop):
    """A topic of this test's own, with four queues."""
    name = f"consumed-{loop.name}-{next(numbers)}"
    broker.create_topic(name, 4)
    return name


@pytest.fixture
def group(loop):
    """A group of this test's own."""
    return f"group-{loop.name}-{next(numbers)}"


def fill(broker, topic, count, **fields):
    for number in range(count):
        broker.send(topic, b"%d" % number, queue_id=number % 4, **fields)


async def take(consumer, count):
    found = []
    async for message in consumer:
        found.append(message)
        if len(found) == count:
            break
    return found


def test_a_message_arrives_with_all_its_fields(broker, loop, topic, group):
    broker.send(topic, b"apples", tags="fruit", keys="42 43", properties={"a": "b"})

    async def scenario():
        async with Consumer(broker.name_server, group, topic, start="first") as it:
            (message,) = await take(it, 1)
        assert (message.topic, message.body, message.tags) == (
            topic,
            b"apples",
            "fruit",
        )
        assert message.keys == ("42", "43")
        assert message.properties["a"] == "b"
        assert message.queue == (topic, "broker-test", 0)
        assert (message.queue_offset, message.attempt) == (0, 1)
        assert abs(datetime.now(UTC) - message.stored_at) < timedelta(minutes=1)

    loop(scenario)


def test_leaving_the_block_commits(broker, loop, topic, group):
    fill(broker, topic, 12)

    async def scenario():
        seen = []
        for part in (5, 7):
            async with Consumer(broker.name_server, group, topic, start="first") as it:
                seen += [each.body for each in await take(it, part)]
        assert sorted(seen, key=int) == [b"%d" % number for number in range(12)]

    loop(scenario)


@pytest.mark.slow
def test_an_exception_of_the_block_gives_the_last_one_back(broker, loop, topic, group):
    fill(broker, topic, 1)

    async def scenario():
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the block is meant
            async with Consumer(broker.name_server, group, topic, start="first") as it:
                async for _ in it:
                    raise ZeroDivisionError
        async with Consumer(broker.name_server, group, topic) as it:
            (again,) = await take(it, 1)
            assert (again.topic, again.attempt) == (topic, 2)

    loop(scenario)


def test_a_cancellation_leaves_the_message(broker, loop, topic, group):
    fill(broker, topic, 1)

    async def scenario():
        with anyio.move_on_after(0.2):
            async with Consumer(broker.name_server, group, topic, start="first") as it:
                async for _ in it:
                    await anyio.sleep_forever()
        async with Consumer(broker.name_server, group, topic, start="first") as it:
            (again,) = await take(it, 1)
            assert again.attempt == 1

    loop(scenario)


@pytest.mark.parametrize("expression", ["fruit || bread", Sql("TAGS <> 'meat'")])
def test_filters(broker, loop, topic, group, expression):
    for tags in ("meat", "fruit", "meat", "bread"):
        broker.send(topic, tags.encode(), tags=tags)

    async def scenario():
        wanted = {topic: expression}
        async with Consumer(broker.name_server, group, wanted, start="first") as it:
            assert {each.body for each in await take(it, 2)} == {b"fruit", b"bread"}

    loop(scenario)


def test_an_expression_that_the_broker_refuses(broker, loop, topic, group):
    async def scenario():
        wanted = {topic: Sql("a >")}
        with pytest.raises(SubscriptionRefused, match="'a >'"):
            await Consumer(broker.name_server, group, wanted).__aenter__()

    loop(scenario)


def test_batches(broker, loop, topic, group):
    fill(broker, topic, 20)

    async def scenario():
        sizes = []
        async with Consumer(broker.name_server, group, topic, start="first") as it:
            async for batch in it.batches(8, max_wait_ms=50):
                sizes.append(len(batch))
                if sum(sizes) == 20:
                    break
        assert max(sizes) <= 8

    loop(scenario)


def test_deliveries_are_acknowledged_one_by_one(broker, loop, topic, group):
    for number in range(3):
        broker.send(topic, b"%d" % number)

    async def scenario():
        async with Consumer(broker.name_server, group, topic, start="first") as it:
            found = []
            async for message in it.deliveries():
                found.append(message)
                if len(found) == 3:
                    break
            is_acked = found[2].ack()
            assert is_acked
            is_acked = found[2].ack()
            assert not is_acked
            assert await it.position(found[0].queue) == 0
            is_acked = found[0].ack()
            assert is_acked
            assert await it.position(found[0].queue) == 1
        is_acked = found[1].ack()
        assert not is_acked

    loop(scenario)


def test_handlers_run_concurrently(broker, loop, topic, group):
    fill(broker, topic, 12)

    async def scenario():
        at_once, seen = [0], []
        async with Consumer(broker.name_server, group, topic, start="first") as it:

            async def handle(message):
                at_once[0] += 1
                while at_once[0] < 4 and len(seen) < 3:  # noqa: ASYNC110 - a test
                    await anyio.sleep(0.001)
                seen.append(message.body)
                if len(seen) == 12:
                    it.stop()

            await it.run(handle, concurrency=4)
        assert len(set(seen)) == 12

    loop(scenario)


def test_plain_functions_and_lists(broker, loop, topic, group):
    fill(broker, topic, 12)

    async def scenario():
        seen = []
        async with Consumer(broker.name_server, group, topic, start="first") as it:

            def handle(messages):
                seen.extend(messages)
                if len(seen) == 12:
                    it.stop()

            await it.run(handle, batch=5)

    loop(scenario)


@pytest.mark.slow
def test_a_failure_comes_again_and_at_last_is_dead(broker, loop, topic, group):
    fill(broker, topic, 2)

    async def scenario():
        attempts = []
        async with Consumer(
            broker.name_server, group, topic, start="first", max_attempts=2
        ) as it:

            async def handle(message):
                attempts.append((message.body, message.attempt))
                if message.body == b"0":
                    raise ValueError("not this one")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(it.run, handle)
                dead = dlq_topic(group)
                while not await anyio.to_thread.run_sync(  # noqa: ASYNC110 - a test
                    broker.messages, dead
                ):
                    await anyio.sleep(0.05)
                it.stop()
        assert [each for each in attempts if each[0] == b"0"] == [
            (b"0", 1), (b"0", 2), (b"0", 3)
        ]  # fmt: skip
        assert attempts.count((b"1", 1)) == 1

    loop(scenario)
    (dead,) = broker.messages(dlq_topic(group))
    assert dead.body == b"0"


def test_nack_to_the_dead_letters(broker, loop, topic, group):
    fill(broker, topic, 1)

    async def scenario():
        async with Consumer(broker.name_server, group, topic, start="first") as it:
            async for message in it.deliveries():
                await message.nack(dead_letter=True)
                break

    loop(scenario)
    assert [each.body for each in broker.messages(dlq_topic(group))] == [b"0"]


@pytest.mark.slow
def test_a_handler_that_takes_too_long(broker, loop, topic, group):
    fill(broker, topic, 1)

    async def scenario():
        attempts = []
        async with Consumer(
            broker.name_server, group, topic, start="first", consume_timeout_s=0.2
        ) as it:

            async def handle(message):
                attempts.append(message.attempt)
                if message.attempt == 1:
                    await anyio.sleep_forever()
                it.stop()

            await it.run(handle)
        assert attempts == [1, 2]

    loop(scenario)


def test_order_within_a_key(broker, loop, topic, group):
    async def scenario():
        async with Producer(broker.name_server) as producer:
            for number in range(30):
                body = b"%d" % number
                await producer.send(Message(topic, body), key="abc"[number % 3])
        seen = {}
        async with Consumer(
            broker.name_server, group, topic, start="first", ordered=True
        ) as it:

            async def handle(message):
                queue = seen.setdefault(message.queue, [])
                queue.append(None)
                await anyio.sleep(0.001)
                value = queue.pop()
                assert value is None
                queue.append(message.queue_offset)
                if sum(map(len, seen.values())) == 30:
                    it.stop()

            await it.run(handle, concurrency=8)
        for offsets in seen.values():
            assert offsets == list(range(len(offsets)))

    loop(scenario)


@pytest.mark.slow
def test_a_failing_message_stops_its_queue_only(broker, loop, topic, group):
    fill(broker, topic, 8)

    async def scenario():
        seen = []
        async with Consumer(
            broker.name_server, group, topic, start="first", ordered=True
        ) as it:

            async def handle(message):
                if message.body == b"0" and message.attempt == 1:
                    raise ValueError("once")
                seen.append(message.body)
                if len(seen) == 8:
                    it.stop()

            await it.run(handle)
        assert seen.index(b"0") < seen.index(b"4")
        assert seen.index(b"0") >= 6

    loop(scenario)


@pytest.mark.slow
def test_an_ordered_message_that_fails_goes_to_the_dead_letters(
    broker, loop, topic, group
):
    """It comes again `max_attempts` times, as in a group without order."""
    fill(broker, topic, 8)

    async def scenario():
        seen, attempts = [], []
        async with Consumer(
            broker.name_server,
            group,
            topic,
            start="first",
            ordered=True,
            max_attempts=2,
        ) as it:

            async def handle(message):
                if message.body == b"0":
                    attempts.append(message.attempt)
                    raise ValueError("never")
                seen.append(message.body)
                if len(seen) == 7:
                    it.stop()

            await it.run(handle)
        assert attempts == [1, 2, 3]

    loop(scenario)
    while not (dead := broker.messages(dlq_topic(group))):
        time.sleep(0.05)
    assert [each.body for each in dead] == [b"0"]


def test_two_members_share_the_queues(broker, loop, topic, group):
    async def scenario():
        async with Consumer(broker.name_server, group, topic) as one:
            await assigned(one, 4)
            async with Consumer(broker.name_server, group, topic) as two:
                await assigned(one, 2)
                await assigned(two, 2)
                mine = {each for each in one.assignment() if each.topic == topic}
                assert not mine & set(two.assignment())
            await assigned(one, 4)

    def of_topic(consumer):
        return [each for each in consumer.assignment() if each.topic == topic]

    async def assigned(consumer, count):
        while len(of_topic(consumer)) != count:  # noqa: ASYNC110 - a test
            await anyio.sleep(0.01)

    loop(scenario)


def test_callbacks_see_queues_come_and_go(broker, loop, topic, group):
    calls = []

    async def scenario():
        async def gained(queues):
            calls.append(("gained", {each.topic for each in queues}))

        async def lost(queues):
            calls.append(("lost", {each.topic for each in queues}))

        async with Consumer(
            broker.name_server, group, topic, on_assigned=gained, on_revoked=lost
        ):
            pass

    loop(scenario)
    assert calls[0][0] == "gained"
    assert topic in calls[0][1]
    assert calls[-1][0] == "lost"


def test_broadcast(broker, loop, topic, group, tmp_path):
    fill(broker, topic, 4)

    async def scenario():
        for name in ("one", "two"):
            offsets = FileOffsets(tmp_path / name)
            for expected in (4, 0):
                async with Consumer(
                    broker.name_server,
                    group,
                    topic,
                    broadcast=True,
                    start="first",
                    offsets=offsets,
                ) as it:
                    found = []
                    with anyio.move_on_after(0.05 if expected == 0 else 5):
                        found = await take(it, max(expected, 1))
                    assert len(found) == expected

    loop(scenario)


def test_given_queues(broker, loop, topic, group):
    fill(broker, topic, 40)

    async def scenario():
        async with Consumer(broker.name_server, group) as it:
            queues = await it.queues(topic)
            assert len(queues) == 4
            it.assign(queues[:2])
            await it.seek(queues[0], 3)
            await it.seek(queues[1], "first")
            found = []
            while batch := await it.fetch(timeout_s=0.1):
                found += batch
            assert len(found) == 17
            await it.commit()
            assert await it.committed(queues[0]) == 10
            with pytest.raises(NotAssigned):
                await it.position(queues[3])
            await it.seek(queues[1], datetime(2020, 1, 1, tzinfo=UTC))
            assert (await it.fetch(1))[0].queue_offset == 0
        async with Consumer(broker.name_server, group) as it:
            it.assign(queues[:2])
            assert await it.position(queues[0]) == 10

    loop(scenario)


def test_a_queue_without_a_commit(broker, loop, topic, group):
    fill(broker, topic, 4)

    async def scenario():
        async with Consumer(broker.name_server, group) as it:
            queue = (await it.queues(topic))[0]
            it.assign([queue])
            assert await it.committed(queue) is None

    loop(scenario)


def test_one_that_looks_is_not_noticed(broker, loop, topic, group):
    fill(broker, topic, 8)
    broker.send(topic, b"tagged", queue_id=0, tags="A")

    async def scenario():
        async with Consumer(broker.name_server, group, silent=True) as it:
            queues = await it.queues(topic)
            it.assign(queues[:1], "A")
            await it.seek(queues[0], "first")
            assert [each.body for each in await it.fetch()] == [b"tagged"]
            await it.commit()
            assert await it.position(queues[0]) == 3
            assert await it.committed(queues[0]) is None
            assert broker.node.broker.context.consumers.group(group) is None

    loop(scenario)
    with pytest.raises(ConfigError, match="silent"):
        Consumer(broker.name_server, group, topic, silent=True)


def test_pause_and_resume(broker, loop, topic, group):
    async def scenario():
        async with Consumer(broker.name_server, group, start="first") as it:
            queues = await it.queues(topic)
            it.assign(queues[:1])
            await it.pause(queues[:1])
            await it.seek(queues[0], 0)
            await anyio.to_thread.run_sync(fill, broker, topic, 4)
            assert await it.fetch(timeout_s=0.05) == []
            await it.resume(queues[:1])
            assert len(await it.fetch()) == 1

    loop(scenario)


def test_a_consumer_that_acknowledges_nothing_is_bounded(broker, loop, topic, group):
    fill(broker, topic, 120)

    async def scenario():
        async with Consumer(
            broker.name_server, group, topic, start="first",
            buffer_messages=40, fetch_messages=5,
        ) as it:  # fmt: skip
            found = []
            with anyio.move_on_after(0.1):
                async for message in it.deliveries():
                    found.append(message)
            assert 40 <= len(found) < 40 + 5 * 5
            assert it.puller.count == len(found)
            for message in found:
                message.ack()
            with anyio.fail_after(5):
                async for message in it.deliveries():
                    message.ack()
                    found.append(message)
                    if len(found) == 120:
                        break
            assert sum(it.lag().values()) == it.puller.count == 0

    loop(scenario)


def test_request_and_reply(broker, loop, topic, group):
    async def scenario():
        async with (
            Producer(broker.name_server) as producer,
            Consumer(broker.name_server, group, topic, start="first") as consumer,
        ):

            async def answer(question):
                await producer.reply(question, question.body.upper())
                consumer.stop()

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(consumer.run, answer)
                price = await producer.request(Message(topic, b"price"))
            assert price.body == b"PRICE"

    loop(scenario)


def test_namespaces(broker, loop, topic, group):
    async def scenario():
        async with Client(broker.name_server, namespace="ns") as client:
            async with Producer(client) as producer:
                await producer.send(Message(topic, b"x"))
            async with Consumer(client, group, topic, start="first") as it:
                (message,) = await take(it, 1)
                assert message.topic == message.queue.topic == topic

    loop(scenario)
    assert broker.messages(f"ns%{topic}")


def test_misuse_is_named(broker, loop, topic, group):
    async def scenario():
        consumer = Consumer(broker.name_server, group, topic)
        with pytest.raises(ClientClosed):
            await consumer.commit()
        async with consumer:
            with pytest.raises(ClientClosed, match="its group assigns the queues"):
                consumer.assign([])

    loop(scenario)
    with pytest.raises(ConfigError, match="buffer_bytes"):
        Consumer(broker.name_server, group, topic, buffer_bytes=0)
    with pytest.raises(ConfigError, match="has no tag"):
        Consumer(broker.name_server, group, {topic: "||"})


@pytest.mark.slow
def test_a_consumer_may_come_before_its_topic(loop, tmp_path, group):
    with BrokerThread(tmp_path) as broker:

        async def scenario():
            async with Consumer(broker.name_server, group, "New", start="first") as it:
                await anyio.to_thread.run_sync(broker.create_topic, "New")
                await anyio.to_thread.run_sync(broker.send, "New", b"x")
                (message,) = await take(it, 1)
                assert message.body == b"x"

        loop(scenario)


def test_a_topic_that_no_send_creates_fails_the_start(loop, tmp_path, group):
    with BrokerThread(tmp_path, {"autoCreateTopicEnable": "false"}) as broker:

        async def scenario():
            with pytest.raises(NoRoute, match="create the topic, or allow"):
                async with Consumer(broker.name_server, group, "New"):
                    pass

        loop(scenario)
