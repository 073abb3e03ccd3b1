"""taskiq on rmq."""

import asyncio
import itertools
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import pytest

taskiq = pytest.importorskip("taskiq")

from taskiq import AckableMessage, BrokerMessage  # noqa: E402
from taskiq.api import run_receiver_task  # noqa: E402
from taskiq.brokers.inmemory_broker import InmemoryResultBackend  # noqa: E402

from rmq.integrations.taskiq import RmqBroker, RmqScheduleSource  # noqa: E402
from rmq.testing import BrokerThread  # noqa: E402

numbers = itertools.count()
LIMIT_S = 10


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    settings = {"recallMessageEnable": "true"}
    with BrokerThread(tmp_path_factory.mktemp("broker"), settings) as running:
        yield running


@pytest.fixture
def open_broker(server):
    """A function that opens a broker for an async block."""
    queue = f"taskiq-{next(numbers)}"

    @asynccontextmanager
    async def opened(**options):
        broker = RmqBroker(server.name_server, **{"queue": queue, **options})
        broker = broker.with_result_backend(InmemoryResultBackend())
        await broker.startup()
        try:
            yield broker
        finally:
            await broker.shutdown()

    opened.queue = queue
    return opened


def message(text, **labels):
    return BrokerMessage(
        task_id=text, task_name="x", message=text.encode(), labels=labels
    )


async def take(broker, count, limit_s=LIMIT_S):
    """The next messages, acknowledged, in the order of their arrival."""
    found = []
    listening = broker.listen()
    async with asyncio.timeout(limit_s):
        async for each in listening:
            assert isinstance(each, AckableMessage)
            found.append(each.data.decode())
            await each.ack()
            if len(found) == count:
                break
    await listening.aclose()
    return found


def run(function, *arguments):
    return asyncio.run(function(*arguments))


def test_messages_that_were_kicked_are_listened_to(open_broker):
    async def main():
        async with open_broker() as broker:
            for text in ("a", "b", "c"):
                await broker.kick(message(text))
            return await take(broker, 3)

    assert run(main) == ["a", "b", "c"]


def test_tasks_run_and_results_arrive(open_broker):
    async def main():
        async with open_broker() as broker:

            @broker.task
            async def add(left, right):
                return left + right

            worker = asyncio.create_task(run_receiver_task(broker))
            tasks = [await add.kiq(number, 1) for number in range(20)]
            results = [await each.wait_result(timeout=LIMIT_S) for each in tasks]
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            return [each.return_value for each in results]

    assert run(main) == list(range(1, 21))


def test_a_message_without_an_ack_comes_again(open_broker):
    async def main():
        async with open_broker() as first:
            await first.kick(message("again"))
            async with asyncio.timeout(LIMIT_S):
                held = await anext(first.listen())
        async with open_broker() as second:
            return held.data, await take(second, 1)

    assert run(main) == (b"again", ["again"])


def test_a_message_that_was_acknowledged_does_not_come_again(open_broker):
    async def main():
        async with open_broker() as first:
            await first.kick(message("once"))
            await take(first, 1)
        async with open_broker() as second:
            await second.kick(message("later"))
            return await take(second, 1)

    assert run(main) == ["later"]


def test_a_delayed_message_waits_in_the_broker(open_broker, server):
    async def main():
        async with open_broker() as broker:
            begun = datetime.now(UTC)
            await broker.kick(message("delayed", delay=1))
            await broker.kick(message("at once"))
            found = await take(broker, 1)
            stored = len(server.messages(open_broker.queue))
            return found + await take(broker, 1), stored, datetime.now(UTC) - begun

    found, stored, took = run(main)
    assert found == ["at once", "delayed"]
    assert stored == 1
    assert took > timedelta(seconds=0.9)


def test_larger_priorities_come_first(open_broker):
    async def main():
        async with open_broker(max_priority=2, prefetch=1) as broker:
            for priority in (None, 1, 2, "7"):
                labels = {} if priority is None else {"priority": priority}
                await broker.kick(message(f"p{priority}", **labels))
            return await take(broker, 4)

    assert run(main) == ["p2", "p7", "p1", "pNone"]


def test_a_delayed_task_can_be_recalled(open_broker):
    async def main():
        async with open_broker() as broker:
            await broker.kick(message("gone", delay=2))
            assert await broker.recall("gone")
            with pytest.raises(ValueError, match="has no handle here"):
                await broker.recall("unknown")
            await broker.kick(message("late", delay=1))
            assert await take(broker, 1) == ["late"]
            return await broker.recall("late")

    assert run(main) is False


def test_a_schedule_with_a_time_waits_in_the_broker(open_broker):
    async def main():
        async with open_broker() as broker:
            source = RmqScheduleSource(broker)
            seen, has_come = [], asyncio.Event()

            @broker.task
            async def put(text):
                seen.append(text)
                has_come.set()

            moment = datetime.now(UTC) + timedelta(seconds=1)
            gone = await put.schedule_by_time(source, moment, "gone")
            await put.schedule_by_time(source, moment, "stays")
            await gone.unschedule()
            worker = asyncio.create_task(run_receiver_task(broker))
            async with asyncio.timeout(LIMIT_S):
                await has_come.wait()
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
            assert await source.get_schedules() == []
            with pytest.raises(ValueError, match="cron and interval"):
                await put.schedule_by_cron(source, "* * * * *", "x")
            return seen

    assert run(main) == ["stays"]


def test_each_worker_has_each_task_of_a_broadcast(open_broker):
    async def main():
        async with (
            open_broker(broadcast=True) as first,
            open_broker(broadcast=True) as second,
        ):
            takers = [asyncio.create_task(take(each, 2)) for each in (first, second)]
            await asyncio.sleep(1)  # both read from their start on
            for text in ("a", "b"):
                await first.kick(message(text))
            return await asyncio.gather(*takers)

    assert run(main) == [["a", "b"], ["a", "b"]]


def test_a_broker_that_is_not_started_says_so():
    broker = RmqBroker("127.0.0.1:1")
    with pytest.raises(AssertionError, match="startup"):
        run(broker.kick, message("x"))
