"""Clocks from 1970 to 2106 at the send, at the kill and at the start.

A machine without a battery begins in 1970; a wrong time server may name any year.
The broker starts with each of them, and each message comes once.
"""

import shutil
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq.config.broker import BrokerConfig
from rmq.protocol.hosts import host_bytes
from rmq.protocol.records import decode_stored
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.testing import ManualClock
from tests.plugins.conftest import Caller, build_context
from tests.plugins.timer.timing import flush, send_timed, work

DAY_MS = 86_400_000
END_MS = 1 << 32
HOST = host_bytes("127.0.0.1", 10_911)

NEAR = st.integers(-40, 40).map(lambda days: 1_795_262_400_000 + days * DAY_MS)
CLOCKS = NEAR | st.integers(0, END_MS).map(lambda seconds: seconds * 1_000)
DELAYS = st.sampled_from([1, 2_000, 60_000, DAY_MS, 3 * DAY_MS])
RUNS = st.lists(
    st.tuples(CLOCKS, st.lists(DELAYS, max_size=4), CLOCKS, st.booleans()),
    min_size=1,
    max_size=4,
)


def open_caller(root, clock):
    config = StoreConfig(
        root_dir=str(root), commit_log_file_size=1 << 20, queue_file_size=2_000,
        timer_log_file_size=4_096,
    )  # fmt: skip
    store = MessageStore.open(config, clock=clock, store_host=HOST)
    caller = Caller(build_context(BrokerConfig(broker_name="b"), store, clock))
    caller.topic("T", queues=1)
    return caller


def read_delivered(caller):
    records, offset = [], 0
    while True:
        found = caller.broker.store.reads.get("T", 0, offset, 32)
        if not found.message_count:
            return records
        records += decode_stored(found.body)
        offset = found.next_begin_offset


def run_broker_through(tmp_path_factory, runs):
    """Send, move the clock, kill or stop, and start, for each run."""
    clock, root = ManualClock(), tmp_path_factory.mktemp("clocks") / "s"
    due, number = {}, 0
    caller = open_caller(root, clock)
    for sent_ms, delays, crash_ms, is_killed in runs:
        clock.ms = sent_ms
        for delay_ms in delays:
            body = b"%d" % len(due)
            assert send_timed(caller, "TIMER_DELAY_MS", delay_ms, body=body).code == 0
            due[body] = clock.ms + delay_ms
        work(caller, 3_000)
        clock.ms = crash_ms
        work(caller)
        flush(caller)
        if is_killed:
            number += 1
            copy = root.with_name(f"s{number}")
            shutil.copytree(root, copy)
            caller.broker.store.close()
            root = copy
        else:
            caller.broker.store.close()
        caller = open_caller(root, clock)
    clock.ms = max(due.values(), default=0) + DAY_MS
    work(caller)
    came = Counter(record.body for record in read_delivered(caller))
    caller.broker.store.close()
    return due, came


@pytest.mark.slow
@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)
@given(runs=RUNS)
def test_each_message_comes_once(tmp_path_factory, runs):
    due, came = run_broker_through(tmp_path_factory, runs)
    assert came == Counter(due.keys())


@pytest.mark.parametrize("days", [-36_500, -26, 26, 20_000])
def test_a_machine_that_was_off_with_messages_in_slots(caller, again, clock, days):
    """The records of the queue are taken while slots from before still wait."""
    for number in range(5):
        send_timed(caller, "TIMER_DELAY_MS", "60000", body=b"%d" % number)
    work(caller, 3_000)
    flush(caller)
    for number in range(5, 10):
        send_timed(caller, "TIMER_DELAY_MS", "60000", body=b"%d" % number)
    start_ms = clock.ms
    clock.ms += days * DAY_MS
    caller = again(caller, crash=True)
    work(caller)
    clock.ms = max(clock.ms, start_ms)
    work(caller, 120_000)
    came = Counter(record.body for record in read_delivered(caller))
    assert came == Counter(b"%d" % number for number in range(10))
