"""Somebody sets the clock while things wait: all of them end at their own time.

NTP does it, and a virtual machine that continues. Each wait ends within its own length
and 2 s. After a step back it does not end earlier, either.
"""

from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from rmq.broker.housekeeping import evict_idle_clients, watch_clock
from rmq.protocol.bodies.common import MessageQueue
from rmq.protocol.codes import RequestCode
from rmq.testing import TrioClock
from tests.plugins.conftest import RecordingConnection, records
from tests.plugins.consume.pop.popping import Popping

STEPS_S = [-1, -300, -3_600, 3_600]
SLACK_S = 2.1
LONGEST_S = 7_200


class SetClock(TrioClock):
    """Trio's clock, with a date that somebody sets."""

    step_ms = 0

    def now_ms(self):
        return super().now_ms() + self.step_ms

    def steady_ms(self):
        return super().now_ms()


@pytest.fixture
def run(open_broker, make_caller_of):
    """Run a test in a broker whose services run, on a clock that jumps ahead."""

    @asynccontextmanager
    async def living(caller):
        broker = caller.broker
        async with trio.open_nursery() as nursery:
            for service in caller.registered.services:
                nursery.start_soon(service.run)
            nursery.start_soon(watch_clock, broker.clock_steps)
            nursery.start_soon(
                evict_idle_clients,
                broker.producers,
                broker.consumers,
                broker.clock,
                broker.clock_steps,
                broker.config.channel_expired_timeout_ms,
                trio.lowlevel.checkpoint,
            )
            await trio.sleep(3)
            yield
            nursery.cancel_scope.cancel()

    def run(test):
        async def main():
            caller = make_caller_of(open_broker(clock=SetClock()))
            async with living(caller):
                await test(caller)

        trio.run(main, clock=MockClock(autojump_threshold=0))

    return run


async def waited_s(is_over):
    """Return the seconds until something is over."""
    began = trio.current_time()
    while not is_over() and trio.current_time() - began < LONGEST_S:  # noqa: ASYNC110
        await trio.sleep(0.05)
    return trio.current_time() - began


def check_length(seconds, length_s, step_s):
    assert seconds <= length_s + SLACK_S
    if step_s < 0:
        assert seconds >= length_s - 1.1


def put_back(caller, step_s):
    caller.broker.clock.step_ms += step_s * 1_000


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize(("level", "length_s"), [(2, 5), (5, 60), (14, 600)])
def test_delay_levels(run, step_s, level, length_s):
    async def test(caller):
        caller.send(properties=f"DELAY\x01{level}\x02")
        caller.report_arrivals()
        await trio.sleep(1)
        put_back(caller, step_s)
        await trio.sleep(1.5)
        caller.send(body=b"after", properties=f"DELAY\x01{level}\x02")
        caller.report_arrivals()
        seconds = await waited_s(lambda: records(caller))
        check_length(seconds + 2.5, length_s, step_s)
        seconds += await waited_s(lambda: len(records(caller)) == 2)
        assert length_s <= seconds <= length_s + SLACK_S

    run(test)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_retries(run, step_s):
    async def test(caller):
        caller.broker.groups.find("G")
        caller.send(body=b"failed")
        (record,) = records(caller)
        fields = {
            "offset": record.physical_offset, "group": "G", "delayLevel": 4,
            "originTopic": "T",
        }  # fmt: skip
        assert caller.call(RequestCode.CONSUMER_SEND_MSG_BACK, fields).code == 0
        caller.report_arrivals()
        put_back(caller, step_s)
        seconds = await waited_s(lambda: records(caller, "%RETRY%G"))
        check_length(seconds, 30, step_s)

    run(test)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_popped_messages(run, step_s):
    async def test(caller):
        popping = Popping(caller)
        caller.send(body=b"popped")
        caller.report_arrivals()
        popped = popping.pop(invisibleTime=30_000)
        assert popped
        put_back(caller, step_s)
        seconds = await waited_s(lambda: records(caller, "%RETRY%G_T"))
        check_length(seconds, 30, step_s)

    run(test)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_messages_that_are_popped_in_order(run, step_s):
    async def test(caller):
        popping = Popping(caller)
        caller.send(body=b"popped")
        caller.report_arrivals()
        popped = popping.pop(invisibleTime=30_000, order="true")
        assert popped
        put_back(caller, step_s)
        await trio.sleep(1)
        seconds = await waited_s(
            lambda: popping.pop(invisibleTime=30_000, order="true")
        )
        check_length(seconds + 1, 30, step_s)

    run(test)


@pytest.mark.parametrize("step_s", STEPS_S)
@pytest.mark.parametrize("immunity", ["", "CHECK_IMMUNITY_TIME_IN_SECONDS\x0140\x02"])
def test_transaction_checks(run, step_s, immunity):
    async def test(caller):
        now_ms = caller.broker.clock.now_ms()
        asked = caller.connection
        register = caller.broker.producers.register
        register("PG", "p@1", asked, "JAVA", 513, now_ms)
        text = f"TRAN_MSG\x01true\x02PGROUP\x01PG\x02{immunity}"
        caller.send(properties=text, sysFlag=4, bornTimestamp=now_ms)
        caller.report_arrivals()
        put_back(caller, step_s)
        is_asked = waited_s(lambda: asked.sent)
        with trio.move_on_after(200):
            config = caller.broker.config
            length_s = config.transaction_check_interval_ms / 1_000
            length_s += 40 if immunity else config.transaction_time_out_ms / 1_000
            assert await is_asked <= length_s + length_s + SLACK_S

    run(test)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_clients_without_heartbeats(run, step_s):
    async def test(caller):
        clock = caller.broker.clock
        client = RecordingConnection(port=40_002)
        register = caller.broker.producers.register
        register("PG", "p@1", client, "JAVA", 513, clock.now_ms())
        put_back(caller, step_s)
        await trio.sleep(100)
        assert client.is_open
        seconds = await waited_s(lambda: not client.is_open)
        assert seconds <= 20 + 10 + SLACK_S

    run(test)


@pytest.mark.parametrize("step_s", STEPS_S)
def test_locks_of_queues(run, step_s):
    async def test(caller):
        locks, queue = (
            caller.broker.queue_locks,
            MessageQueue(topic="T", broker_name="b", queue_id=0),
        )
        assert locks.lock("G", "one", [queue])
        put_back(caller, step_s)
        await trio.sleep(1.1)
        seconds = await waited_s(lambda: locks.lock("G", "two", [queue]))
        assert 57 <= seconds <= 60 + SLACK_S

    run(test)
