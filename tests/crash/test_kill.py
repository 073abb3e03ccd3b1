"""kill -9 of an appending process: acknowledged records are there once, in order."""

import os
import signal
import subprocess
import sys

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.core.clock import SystemClock
from rmq.store.config import FlushDiskType, StoreConfig
from rmq.store.message_store import MessageStore
from tests.history import History, Place

HOST = bytes((127, 0, 0, 1)) + bytes(4)
SETTINGS = {"commit_log_file_size": 65536, "queue_file_size": 2000}
CHILD = """
import sys
from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.config import FlushDiskType, StoreConfig
from rmq.store.message_store import MessageStore

sync = sys.argv[2] == "SYNC_FLUSH"
host = bytes((127, 0, 0, 1)) + bytes(4)
config = StoreConfig(
    root_dir=sys.argv[1],
    commit_log_file_size=65536,
    queue_file_size=2000,
    flush_disk_type=FlushDiskType(sys.argv[2]),
    tail_ring_bytes=int(sys.argv[3]),
    max_message_size=60_000,
)
store = MessageStore.open(config, clock=SystemClock(), store_host=host)
number = sum(store.reads.max_offset("Topic", queue_id) for queue_id in range(3))
while True:
    body = b"%d" % number + b"." * (number % 700)
    result = store.writes.put(Message("Topic", number % 3, body, 0, 0, 0, host))
    if sync:
        store.durability.flush()
        assert store.positions.durable.value >= result.end_offset
    elif number % 50 == 0:
        store.flush_queues(thorough=number % 100 == 0)
    print(number % 3, result.queue_offset, number, flush=True)
    number += 1
"""


def run_and_kill(root, count, flush="ASYNC_FLUSH", ring="0"):
    """Acknowledged (queue, queue offset, number) of a child that was killed."""
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(root), flush, ring],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        text=True,
    )
    lines = []
    try:
        lines += [child.stdout.readline() for _ in range(count)]
    finally:
        os.kill(child.pid, signal.SIGKILL)
        lines += child.stdout.readlines()
        child.stdout.close()
        child.wait()
    return [tuple(map(int, line.split())) for line in lines if line.endswith("\n")]


@pytest.mark.crash
@pytest.mark.parametrize("ring", ["0", "1048576", "67108864"])
@pytest.mark.parametrize("count", [1, 99, 700, 2500])
def test_acknowledged_messages_survive(tmp_path, count, ring):
    acknowledged = run_and_kill(tmp_path, count, ring=ring)
    config = StoreConfig(root_dir=str(tmp_path), **SETTINGS)
    store = MessageStore.open(config, clock=SystemClock(), store_host=HOST)
    try:
        assert not store.recovery.was_clean
        assert not any(cut.record_count for cut in store.recovery.cuts)
        assert not history_of(acknowledged).faults(everything(store))
        for queue_id in range(3):
            known = sum(1 for queue, _, _ in acknowledged if queue == queue_id)
            assert known <= store.reads.max_offset("Topic", queue_id) <= known + 1
    finally:
        store.close()


def history_of(acknowledged):
    """One send after the other; of the one after the last nobody knows."""
    history = History()
    for queue_id, offset, number in acknowledged:
        history.invoke(number)
        history.answer(number, 0, Place("Topic", queue_id, offset))
    history.invoke(acknowledged[-1][2] + 1)
    return history


def everything(store):
    """Numbers and places of all messages, in the order of their queues."""
    found = []
    for queue_id in range(3):
        for offset in range(store.reads.max_offset("Topic", queue_id)):
            record = decode_record(store.reads.get("Topic", queue_id, offset, 1).body)
            assert (record.queue_id, record.queue_offset) == (queue_id, offset)
            number = int(record.body.rstrip(b"."))
            assert record.body == b"%d" % number + b"." * (number % 700)
            found.append((number, Place("Topic", queue_id, offset)))
    return found


@pytest.mark.crash
@pytest.mark.parametrize("ring", ["0", "1048576"])
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_three_kills_in_a_row_lose_and_repeat_nothing(tmp_path, flush, ring):
    acknowledged = []
    config = StoreConfig(
        root_dir=str(tmp_path), flush_disk_type=FlushDiskType(flush), **SETTINGS
    )
    for _ in range(3):
        told = run_and_kill(tmp_path, 1000, flush, ring)
        assert len(told) >= 1000
        acknowledged += told
        store = MessageStore.open(config, clock=SystemClock(), store_host=HOST)
        try:
            assert not store.recovery.was_clean
            assert not any(cut.record_count for cut in store.recovery.cuts)
            found = everything(store)
        finally:
            store.close()
        assert not history_of(acknowledged).faults(found)
        if len(found) > len(acknowledged):
            number, place = max(found)
            acknowledged.append((place.queue_id, place.offset, number))


MANY_QUEUES = """
import os
import sys
from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

host = bytes((127, 0, 0, 1)) + bytes(4)
config = StoreConfig(root_dir=sys.argv[1])
store = MessageStore.open(config, clock=SystemClock(), store_host=host)
count, flushed = 10_000, int(sys.argv[2])
for number in range(3 * count):
    topic, queue_id = divmod(number % count, 4)
    body = b"%d" % number
    store.writes.put(Message(f"T{topic}", queue_id, body, 0, 0, 0, host))
    if number == flushed:
        steps = store.flush_steps(thorough=True)
        for _, step in zip(range(40), steps):
            step()
assert len(os.listdir("/proc/self/fd")) < 300
os.kill(os.getpid(), 9)
"""


@pytest.mark.crash
@pytest.mark.parametrize("flushed", [-1, 15_000, 25_000])
def test_ten_thousand_queues_survive_a_kill(tmp_path, flushed):
    """Also in the middle of a flush: most entries were only in memory."""
    child = subprocess.run(
        [sys.executable, "-c", MANY_QUEUES, str(tmp_path), str(flushed)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        check=False,
        timeout=120,
    )
    assert child.returncode == -signal.SIGKILL
    config = StoreConfig(root_dir=str(tmp_path))
    store = MessageStore.open(config, clock=SystemClock(), store_host=HOST)
    assert store.recovery.duration_ms < 20_000, store.recovery.lines()
    assert len(store.queues) == 10_000
    for number in range(30_000):
        topic, queue_id = divmod(number % 10_000, 4)
        result = store.reads.get(f"T{topic}", queue_id, number // 10_000, 1)
        assert decode_record(result.body).body == b"%d" % number
    store.close()
