"""A master that comes back delivers only what its acting slave did not."""

import pytest

from rmq.protocol.codes import RequestCode
from rmq.protocol.message import Message
from rmq.protocol.topics import TIMER_TOPIC, revive_topic
from rmq.store.timer.checkpoint import ClockReturn, TimerCheckpoint
from tests.plugins.conftest import bodies
from tests.plugins.timer.timing import send_timed, work

DUE_MS = 5_000


def take_back(caller, checkpoint):
    assert caller.broker.store.timer.take_back(checkpoint.encode())


def end_of_record(caller, offset):
    """The offset of the log after a record of the timer's queue."""
    found = caller.broker.store.reads.physical_at(TIMER_TOPIC, 0, offset + 1)
    return found if found >= 0 else caller.broker.store.log.end_offset


@pytest.mark.parametrize("has_slots", [False, True])
def test_messages_that_the_slave_did_not_have_come(caller, again, has_slots):
    for body in (b"sent by the slave", b"unknown to the slave"):
        send_timed(caller, body=body)
    if has_slots:
        work(caller)
    began_ms = caller.broker.clock.now_ms()
    caller = again(caller, crash=True)
    later_ms = began_ms + 2 * DUE_MS
    take_back(caller, TimerCheckpoint(read_ms=later_ms, master_queue_offset=1))
    work(caller, DUE_MS + 1_000)
    assert bodies(caller) == [b"unknown to the slave"]


@pytest.mark.parametrize(
    ("offset", "slot"), [(2, 50), (0, 150)], ids=["earlier slot", "earlier offset"]
)
def test_progress_covers_only_what_one_broker_has_delivered(caller, offset, slot):
    """The master has read 1 record and the slots before 100."""
    timer = caller.broker.store.timer
    for _ in range(2):
        send_timed(caller)
    read_ms = 100 * timer.precision_ms
    timer.checkpoint = TimerCheckpoint(read_ms=read_ms, master_queue_offset=1)
    timer.save_acting_progress(offset, slot, slot)
    end = caller.broker.store.log.end_offset
    assert timer.is_delivered(0, 0, 60)
    assert not timer.is_delivered(end - 1, 1, 60)
    assert not timer.is_delivered(end - 1, 0, 120)


def test_the_slots_of_one_broker_do_not_cover_the_records_of_the_other(caller, again):
    """The master has read no record yet, and has delivered all slots of this time. The
    slave has read the record, and has delivered only earlier slots.
    """
    send_timed(caller)
    later_ms = caller.broker.clock.now_ms() + 2 * DUE_MS

    def set_progress(root):
        progress = TimerCheckpoint(read_ms=later_ms)
        progress.save(root / "config" / "timercheck")

    caller = again(caller, crash=True, change=set_progress)
    take_back(caller, TimerCheckpoint(read_ms=1, master_queue_offset=1))
    work(caller, 3 * DUE_MS)
    assert bodies(caller) == [b"later"]


def test_a_slave_with_a_longer_log_does_not_cover_new_messages(caller):
    """The master has lost the end of its log, and writes other messages there."""
    later_ms = caller.broker.clock.now_ms() + 2 * DUE_MS
    longer = ClockReturn(1 << 30, later_ms)
    take_back(caller, TimerCheckpoint(master_queue_offset=5, returns=(longer,)))
    send_timed(caller)
    work(caller, DUE_MS + 1_000)
    assert bodies(caller) == [b"later"]


def test_progress_in_two_parts_covers_both(caller):
    """The slave has read more records than the master, and fewer slots."""
    for _ in range(2):
        send_timed(caller)
    now_ms, end = caller.broker.clock.now_ms(), caller.broker.store.log.end_offset
    part = ClockReturn(end, now_ms + 2 * DUE_MS)
    take_back(
        caller,
        TimerCheckpoint(
            read_ms=now_ms + 9 * DUE_MS, master_queue_offset=1, returns=(part,)
        ),
    )
    work(caller, DUE_MS + 1_000)
    assert bodies(caller) == []


def test_records_of_pop_wait_for_the_master(caller):
    topic = revive_topic(caller.broker.config.broker_cluster_name)
    caller.topic(topic, queues=1)
    for name in ("T", topic):
        properties = {"TIMER_DELAY_MS": str(DUE_MS)}
        message = Message(name, 0, name.encode(), 0, 0, 1, bytes(8), 0, 0, properties)
        caller.broker.put.put(message)
    end = end_of_record(caller, 1)
    done = ClockReturn(end, caller.broker.clock.now_ms() + 2 * DUE_MS)
    take_back(caller, TimerCheckpoint(master_queue_offset=2, returns=(done,)))
    work(caller, DUE_MS + 1_000)
    assert bodies(caller) == []
    assert bodies(caller, topic=topic) == [topic.encode()]


def test_an_old_progress_changes_nothing(caller):
    send_timed(caller)
    take_back(caller, TimerCheckpoint(read_ms=1, master_queue_offset=1))
    work(caller, DUE_MS + 1_000)
    assert bodies(caller) == [b"later"]


def test_a_short_progress_is_refused(caller):
    assert not caller.broker.store.timer.take_back(b"short")
    assert caller.call(RequestCode.GET_TIMER_CHECK_POINT).code == 0
