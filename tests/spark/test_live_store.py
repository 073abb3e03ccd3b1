"""Readers and exporters beside a live store that appends, rolls, loses old files."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rmq_spark.export.folder import MANIFESTS
from rmq_spark.options import Options
from rmq_spark.segments import commit_log, plan
from rmq_spark.segments.broker_requests import report_offset, request_end
from rmq_spark.segments.reader import read_range, read_settings
from rmq_spark.segments.schema import columns_of
from rmq_spark.session import missing
from tests.crash.laboratory import DEFAULT_RING, Load, broker, dice, number_of
from tests.spark.exports import log_of

KILLS_PER_STEP = 5
STEPS = ("plan", "write", "link", "table", "manifest")
LIBRARIES = {"parquet": "pyarrow", "delta": "deltalake", "iceberg": "pyiceberg"}
SEGMENTS_LIMIT = 400  # of 256 KiB
START_LIMIT_S = 120
FINISH_LIMIT_S = 900
"""A busy machine gives the load more time, and each step of its export a pause."""
BROKER = """
import sys, time
from rmq.core.clock import SystemClock
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
        store.writes.put(Message(topic, number % 4, body, 0, 0, 0, host))
        number += 1
    print(number, flush=True)
    time.sleep(0.01)
"""
STEP_TELLER = """
import os, random, time
from rmq_spark.export import committers
from rmq_spark.export import task
from rmq_spark.export.manifest import ExportLog

steps = os.open(os.environ["RMQ_STEPS"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)

def told(owner, method, step):
    real = getattr(owner, method)
    def run(*arguments):
        os.write(steps, step)
        time.sleep(random.random() / 100)
        result = real(*arguments)
        os.write(steps, step)
        time.sleep(random.random() / 100)
        return result
    setattr(owner, method, run)

told(ExportLog, "write_plan", b"p")
told(task.FileWriter, "add", b"w")
told(task.FileWriter, "finish", b"l")
of = committers
for kind in of.ParquetCommitter, of.DeltaCommitter, of.IcebergCommitter:
    told(kind, "commit", b"t")
told(ExportLog, "write_manifest", b"m")
"""
"""Loaded into every Python of an exporter, its workers too: notes what it is about."""
SMALL_BATCHES = ["--batch-bytes", "500k", "--split-bytes", "100k"]
"""So that a kill finds each step in reach; Spark takes two seconds for each."""
LIVE = {
    "mappedFileSizeCommitLog": 1 << 18,
    "fileReservedTime": 1,
    "deleteWhen": ";".join(map(str, range(24))),
    "cleanResourceInterval": 50,
    "rmq.exportHold": "true",
}
"""A broker that rolls its log often; a minute after its start it begins to delete what
was exported and is an hour old."""


def start(code, *arguments):
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )


class SinkTask(threading.Thread):
    """Sends to a broker, a fifth of the time, and lets its log look old.

    It waits while exporters are far behind: a slow machine has no more to export.
    """

    def __init__(self, address, store):
        super().__init__()
        self.address = address
        self.store = store
        self.load = Load()
        self.is_over = threading.Event()

    def run(self):
        while not self.is_over.wait(0.4):
            segments = commit_log.find_segments(self.store)
            if len(segments) < SEGMENTS_LIMIT:
                self.load.run(self.address, 0.1)
            for segment in segments[:-2]:
                with contextlib.suppress(FileNotFoundError):
                    os.utime(segment.path, (0, 0))


class Exporting:
    """Exporters of one store or broker, each killed with all its processes."""

    def __init__(self, folder, source, out, *arguments, batches=SMALL_BATCHES):
        """`source`: the folder of a store, or options."""
        self.steps = folder / "steps"
        (folder / "sitecustomize.py").write_text(STEP_TELLER)
        told = source if isinstance(source, list) else ["--store", str(source)]
        self.arguments = [*arguments, *told, "--out", str(out)]
        self._batches = batches
        paths = [str(folder), *(str(Path(p).resolve()) for p in sys.path if p)]
        self.environment = os.environ | {
            "PYTHONPATH": os.pathsep.join(paths),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "RMQ_STEPS": str(self.steps),
        }

    def start(self, command, *arguments):
        self.steps.write_bytes(b"")
        module = [sys.executable, "-m", "rmq_spark.cli", command]
        return subprocess.Popen(
            [*module, *self.arguments, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=self.environment,
        )

    def kill_in(self, step, occurrence):
        """Run one until it is in a step for the nth time, and kill it there."""
        process = self.start("follow", "--interval", "10ms", *self._batches)
        end = time.monotonic() + START_LIMIT_S
        try:
            while self.steps.read_bytes().count(step) < occurrence:
                assert process.poll() is None, process.stderr.read()
                assert time.monotonic() < end, self.steps.read_bytes()
                time.sleep(0.001)
        finally:
            kill_session(process)

    def finish(self):
        """Run one, in batches as users have them, until nothing is new."""
        process = self.start("export")
        _, problem = process.communicate(timeout=FINISH_LIMIT_S)
        assert process.returncode == 0, problem


def kill_session(process):
    """Kill a process and all that it started; workers of Spark have other groups."""
    while pids := [pid for pid in processes() if session_of(pid) == process.pid]:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.poll()
    process.communicate()


def processes():
    return [int(path.name) for path in Path("/proc").glob("[0-9]*")]


def session_of(pid):
    """Its session, if it lives: a dead one that nobody waits for cannot be killed."""
    with contextlib.suppress(OSError):
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return int(state[3]) if state[0] != "Z" else None


def first_offset(store):
    """Where its log begins: not at 0 when the broker has deleted."""
    return commit_log.min_offset(commit_log.find_segments(store))


def files_of(table_format, out):
    """The files of the table, each as often as its own library knows it."""
    if table_format == "delta":
        from deltalake import DeltaTable

        uris = DeltaTable(str(out)).file_uris()
        return sorted(uri.removeprefix(f"{out}/") for uri in uris)
    if table_format == "iceberg":
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("rmq", uri=f"sqlite:///{out}/{MANIFESTS}/iceberg.db")
        paths = catalog.load_table("rmq.messages").inspect.files()["file_path"]
        return sorted(path.removeprefix(f"file://{out}/") for path in paths.to_pylist())
    return sorted(log_of(out).files())


def rows_in(out, paths):
    """Number of each message → its place in the log; each number only once."""
    places = {}
    for path in paths:
        table = pq.read_table(
            out / path, columns=["body", "physicalOffset"], partitioning=None
        )
        for body, place in zip(*table.to_pydict().values(), strict=True):
            number = number_of(body)
            assert number not in places, f"message {number} is there twice"
            places[number] = place
    return places


@pytest.mark.crash
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("master", "table_format"),
    [
        ("none", "parquet"),
        ("none", "delta"),
        ("none", "iceberg"),
        ("local[2]", "parquet"),
    ],
)
def test_twenty_kills_lose_and_repeat_nothing(tmp_path, master, table_format):
    if master != "none" and (problem := missing()):
        pytest.skip(problem)
    pytest.importorskip(LIBRARIES[table_format])
    store, out = tmp_path / "store", tmp_path / "out"
    chance, kills = dice(), Counter()
    with broker(store, **LIVE) as (_, address):
        name = f"{address[0]}:{address[1]}"
        report_offset(name, "lake", 0)
        told = ["--broker", name, "--report-as", "lake", "--master", master]
        told += ["--format", table_format]
        exporting = Exporting(tmp_path, store, out, *told)
        sending = SinkTask(address, store)
        sending.start()
        try:
            while kills["manifest"] < KILLS_PER_STEP or first_offset(store) == 0:
                for step in STEPS:
                    exporting.kill_in(step[:1].encode(), chance.randrange(1, 8))
                    kills[step] += 1
        finally:
            sending.is_over.set()
            sending.join()
        exporting.finish()
        first, end = first_offset(store), request_end(name)
    sent = sending.load.acknowledged
    assert not sending.load.refused

    files = log_of(out).files()
    seen = [
        p.relative_to(out).as_posix() for p in out.glob("topic=*/dt=*/[!.]*.parquet")
    ]
    assert sorted(seen) == sorted(files)
    assert files_of(table_format, out) == sorted(files)
    assert rows_in(out, files) == {n: s.physical_offset for n, s in sent.items()}
    assert sum(file.rows for file in files.values()) == len(sent)
    assert log_of(out).last_manifest().end == end
    told = f"{master} {table_format}: {dict(kills)}, {len(sent)} rows"
    print(f"{told}, log {first} to {end}")  # noqa: T201


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flush", "ring"), [("ASYNC_FLUSH", 1 << 20), ("SYNC_FLUSH", DEFAULT_RING)]
)
def test_reads_beside_a_broker_with_a_ring_are_prefixes(tmp_path, flush, ring):
    """The files end earlier than the log does, with a whole record."""
    store, load, reads, known = tmp_path / "store", Load(), 0, 0
    options = Options({"store": str(store)})
    reading = read_settings(options, columns_of(options))
    with broker(store, flush, ring=ring) as (_, address):
        load.run(address, 0.3)
        sender = threading.Thread(target=load.run, args=(address, 4))
        sender.start()
        while sender.is_alive():
            end = commit_log.find_end(store)
            parts = plan.plan_ranges(
                store, 0, end, split_bytes=100_000, verify_crc="all"
            )
            rows = [
                row
                for part in parts
                for batch in read_range(reading, part)
                for row in batch.to_pylist()
            ]
            following = Counter()
            for row in rows:
                queue = row["topic"], row["queueId"]
                assert row["queueOffset"] == following[queue]
                following[queue] += 1
                number_of(row["body"])
            assert len(rows) >= known
            known, reads = len(rows), reads + 1
        sender.join()
    assert not load.refused
    assert reads > 2
    assert known > 100


@pytest.mark.slow
def test_each_read_beside_a_live_store_is_whole(tmp_path):
    store = tmp_path / "store"
    options = Options({"store": str(store), "failOnDataLoss": "false"})
    reading = read_settings(options, columns_of(options))
    reads = removed = 0
    writing = start(BROKER, store)
    try:
        while reads < 30 or not removed:
            stored = int(writing.stdout.readline())
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
        kill_session(writing)
