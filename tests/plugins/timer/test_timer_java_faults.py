"""Known faults of Java's timer that rmq does not have.

Others have their test where the behaviour is: messages that were dropped while the
store refused, late recalls, records near the limits, stale wheels.
"""

import trio
from trio.testing import MockClock

from rmq.protocol.codes import RequestCode
from rmq.protocol.topics import TIMER_TOPIC
from rmq.store.durability import RefusalKind
from rmq.store.timer.checkpoint import TimerCheckpoint
from rmq_plugins.timer.deliver import COPIES, RETRY_S, Deliveries
from tests.plugins.conftest import bodies, records
from tests.plugins.timer.timing import flush, recall, send_timed, work


def test_the_progress_is_saved_after_the_log_is_durable(caller):
    """Java saved it alone: a power cut lost deliveries that it counted as done."""
    store = caller.broker.store
    path = store.directory.config / "timercheck"
    send_timed(caller)
    work(caller)
    flush(caller)
    before = TimerCheckpoint.load(path)
    work(caller, 10_000)
    assert bodies(caller) == [b"later"]
    delivered_end = store.log.end_offset
    changes = []
    for step in store.timer.flush_steps():
        durable = store.positions.durable.value
        step()
        if TimerCheckpoint.load(path).read_ms != before.read_ms:
            changes.append(durable)
    assert changes
    assert min(changes) >= delivered_end


def test_counts_of_slots_are_right_after_restarts(recalling, again):
    """Java's recovery lost them: limits of slots did not work, metrics got negative."""
    caller = recalling
    answers = [send_timed(caller, body=b"%d" % number) for number in range(7)]
    work(caller)
    recall(caller, answers[0].ext_fields["recallHandle"])
    work(caller)
    (slot,) = caller.broker.store.timer.wheel.slot_numbers()
    before = caller.broker.store.timer.wheel.count_of(slot)
    for crash in (True, False, True):
        caller = again(caller, crash=crash)
        work(caller)
        assert caller.broker.store.timer.wheel.count_of(slot) == before
        facts = caller.broker.facts("timer")
        assert facts["waiting"] == {"T": before}
        assert sum(facts["snapshot"].values()) == before
    work(caller, 10_000)
    assert len(bodies(caller)) == 6
    facts = caller.broker.facts("timer")
    assert facts["waiting"] == {}
    assert set(facts["snapshot"].values()) == {0}
    body = caller.call(RequestCode.GET_BROKER_RUNTIME_INFO).body
    assert b'"timerCongestNum":"0"' in body


def test_units_of_records_that_the_log_lost(caller, again):
    """After a power cut Java's units pointed into the records that came next."""
    for number in range(10):
        send_timed(caller, body=b"old%d" % number)
    work(caller)
    lost_from = records(caller, TIMER_TOPIC)[4].physical_offset

    def cut(root):
        (path,) = (root / "commitlog").glob("0*")
        with path.open("r+b") as file:
            file.seek(lost_from)
            file.write(bytes(8_000))

    caller = again(caller, change=cut, crash=True)
    for number in range(10):
        send_timed(caller, "TIMER_DELAY_MS", "9000", body=b"new%d" % number)
    work(caller)
    work(caller, 60_000)
    expected = [b"old%d" % number for number in range(4)]
    assert bodies(caller) == expected + [b"new%d" % number for number in range(10)]


def test_a_refusal_in_the_middle_of_a_slot_doubles_nothing(make_caller):
    """Java stored a batch again whose first messages had been stored."""
    caller = make_caller()
    count = 2 * COPIES + 5
    for number in range(count):
        send_timed(caller, body=b"%d" % number)
    work(caller)
    caller.broker.clock.ms += 10_000
    deliveries = caller.find(Deliveries)
    durability = caller.broker.store.durability

    async def main():
        async with trio.open_nursery() as nursery:
            nursery.start_soon(deliveries.deliver, deliveries.due_slot())
            while not bodies(caller):
                await trio.lowlevel.checkpoint()
            durability.refuse(RefusalKind.DISK_FULL, "full")
            await trio.sleep(5 * RETRY_S)
            assert 0 < len(bodies(caller)) < count
            durability.resume()

    trio.run(main, clock=MockClock(autojump_threshold=0))
    assert bodies(caller) == [b"%d" % number for number in range(count)]
