"""Readers and exporters beside a live store that appends, rolls, loses old files."""

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections import Counter

import pyarrow.parquet as pq
import pytest

from rmq_spark import commit_log, plan
from rmq_spark.manifest import ExportLog
from rmq_spark.options import Options
from rmq_spark.schema import columns_of
from rmq_spark.segments import read_range, reading_of

KILLS_PER_STEP = 5
STEPS = ("plan", "write", "rename", "commit")
BROKER = """
import sys, time
from rmq.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore

host = bytes((127, 0, 0, 1)) + bytes(4)
config = StoreConfig(
    root_dir=sys.argv[1], commit_log_file_size=1 << 18, queue_file_size=20_000
)
store = MessageStore.open(config, clock=SystemClock(), store_host=host)
number = 0
while True:
    for _ in range(20):
        body = b"%d" % number + b"." * (number % 900)
        topic = "T%d" % (number % 3)
        store.put(Message(topic, number % 4, body, 0, 0, 0, host))
        number += 1
    print(number, flush=True)
    time.sleep(0.01)
"""
EXPORTER = """
import random, sys, time
from rmq_spark import export
from rmq_spark.cli import main
from rmq_spark.manifest import ExportLog

def told(owner, method, step):
    real = getattr(owner, method)
    def run(*arguments):
        print(step, flush=True)
        time.sleep(random.random() / 100)
        result = real(*arguments)
        print(step, flush=True)
        time.sleep(random.random() / 100)
        return result
    setattr(owner, method, run)

told(ExportLog, "write_plan", "plan")
told(export._FileWriter, "add", "write")
told(export._FileWriter, "finish", "rename")
told(ExportLog, "write_manifest", "commit")
main(["export", "--master", "none", "--batch-bytes", "500k", "--split-bytes", "100k",
      "--store", sys.argv[1], "--out", sys.argv[2], *sys.argv[3:]])
"""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


def kill_in(step, occurrence, store, out):
    """Run an exporter until it is in a step for the nth time, and kill it there."""
    process = start(EXPORTER, store, out, "--continuous", "10ms")
    try:
        for line in process.stdout:
            occurrence -= line.strip() == step
            if not occurrence:
                return
        raise AssertionError(process.stderr.read())
    finally:
        kill(process)


def delete_exported(store, out):
    """Remove the segments that were exported, as a cleaner would."""
    last = ExportLog(out).last()
    for segment in commit_log.find_segments(store):
        if last is not None and segment.end_offset <= last.end:
            os.remove(segment.path)


def bodies_in(out, paths):
    counts = Counter()
    for path in paths:
        counts.update(pq.read_table(out / path, columns=["body"])["body"].to_pylist())
    return counts


@pytest.mark.crash
@pytest.mark.timeout(300)
def test_twenty_kills_lose_and_repeat_nothing(tmp_path):
    store, out = tmp_path / "store", tmp_path / "out"
    chance = random.Random(1)
    kills = Counter()
    broker = start(BROKER, store)
    try:
        broker.stdout.readline()
        for _ in range(KILLS_PER_STEP):
            for step in STEPS:
                kill_in(step, chance.randrange(1, 8), store, out)
                kills[step] += 1
                if chance.random() < 0.5:
                    delete_exported(store, out)
        assert commit_log.min_offset(commit_log.find_segments(store)) > 0
    finally:
        kill(broker)
    done = start(EXPORTER, store, out)
    _, problem = done.communicate(timeout=100)
    assert done.returncode == 0, problem

    files = ExportLog(out).files()
    seen = [
        p.relative_to(out).as_posix() for p in out.glob("topic=*/dt=*/[!.]*.parquet")
    ]
    assert sorted(seen) == sorted(files)
    counts = bodies_in(out, files)
    rows = sum(file.rows for file in files.values())
    assert counts == Counter(b"%d" % i + b"." * (i % 900) for i in range(rows))
    assert ExportLog(out).last().end == commit_log.find_end(store)
    assert kills == dict.fromkeys(STEPS, KILLS_PER_STEP)


@pytest.mark.slow
def test_each_read_beside_a_live_store_is_whole(tmp_path):
    store = tmp_path / "store"
    options = Options({"store": str(store), "failOnDataLoss": "false"})
    reading = reading_of(options, columns_of(options))
    reads = removed = 0
    broker = start(BROKER, store)
    try:
        while reads < 30 or not removed:
            stored = int(broker.stdout.readline())
            end = commit_log.find_end(store)
            first = commit_log.min_offset(commit_log.find_segments(store))
            parts = plan.plan_ranges(
                store, first, end, split_bytes=100_000, verify_crc="all"
            )
            if reads % 4 == 3 and len(parts) > 6:
                os.remove(parts[0].path)
                removed += 1
            bodies = [
                body
                for part in parts
                for batch in read_range(reading, part)
                for body in batch.column("body").to_pylist()
            ]
            numbers = [int(body.rstrip(b".")) for body in bodies]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
            assert numbers[-1] >= stored - 1
            assert all(
                b == b"%d" % n + b"." * (n % 900)
                for b, n in zip(bodies, numbers, strict=True)
            )
            reads += 1
    finally:
        kill(broker)
