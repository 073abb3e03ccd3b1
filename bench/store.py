"""Figures of the store: group commit, reopen after kill -9, verify, index.

Every row is measured in this run; wall times depend on the disk, CPU seconds do not.
Group commit: sends to a broker process, held until they are durable, beside what a bare
loop of pwrite and fdatasync of the same bytes reaches on the same disk.  Reopen: a
broker is loaded until its log has so many GB, killed under load and started again; the
CPU of a start with an empty store is subtracted.

    python bench/store.py [--gigabytes 4 16] [--directory DIR]
"""

import argparse
import os
import re
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from urllib.request import urlopen

from load.run import BINARIES, build, play, serving
from load.run import broker_command as command_of

from rmq.core.clock import SystemClock
from rmq.protocol.message import Message
from rmq.store.checkpoint import Checkpoint
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification

GROUP_SIZE = 256
SECONDS = 3
RECORD_SIZE = 320
TAIL_MESSAGES = 1_000_000
GIGA = 1 << 30
READY = r"ready broker=\S+ address=\S+:(\d+)"
HOST = bytes((127, 0, 0, 1)) + bytes(4)
PROPERTIES = "TAGS\x01a\x02UNIQ_KEY\x01%032d\x02"


def row(name: str, value: str) -> None:
    print(f"{name:<40}{value}", flush=True)


def message(number: int) -> Message:
    text = PROPERTIES % number
    return Message("Bench", number % 4, b"x" * 128, 0, 0, 0, HOST, properties_text=text)


def opened(folder: Path, **settings) -> MessageStore:
    config = StoreConfig(root_dir=str(folder), **settings)
    return MessageStore.open(config, clock=SystemClock(), store_host=HOST)


# -- group commit


def bare_loop(folder: Path, records: int) -> None:
    """Write and sync so many records at a time, on a zeroed file: what the disk can."""
    size, file_size = records * RECORD_SIZE, 64 << 20
    descriptor = os.open(folder / "probe", os.O_RDWR | os.O_CREAT)
    for position in range(0, file_size, 1 << 20):
        os.pwrite(descriptor, bytes(1 << 20), position)
    os.fsync(descriptor)
    times: list[float] = []
    data, position, end_s = b"x" * size, 0, time.perf_counter() + 1
    while time.perf_counter() < end_s:
        if position + size > file_size:
            position = 0
        began = time.perf_counter()
        os.pwrite(descriptor, data, position)
        os.fdatasync(descriptor)
        times.append(time.perf_counter() - began)
        position += size
    os.close(descriptor)
    rate, median_us = len(times) / sum(times), statistics.median(times) * 1e6
    row(
        f"bare pwrite and fdatasync, {records} records",
        f"{rate * records:,.0f}/s, {rate:,.0f} flushes/s, median {median_us:.0f} us",
    )


def flush_count(port: int) -> int:
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        text = answer.read().decode()
    match = re.search(r"^rmq_log_flushes_total\S* (\S+)", text, re.MULTILINE)
    assert match, "no such metric"
    return int(float(match[1]))


def send_in_groups(folder: Path) -> None:
    """Sends of a generator in C, each answered when its bytes are on the disk."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        metrics_port = free.getsockname()[1]
    settings = [
        "flushDiskType=SYNC_FLUSH",
        "metricsExporterType=PROM",
        f"metricsPromExporterPort={metrics_port}",
    ]
    with serving(command_of(folder, settings), READY, "stderr", None) as server:
        play(server, ["--connections=4", "--window=64", "--warm-up=1"], 0.01, None)
        for connections, window in ((4, 64), (64, 64), (1, 1)):
            options = [f"--connections={connections}", f"--window={window}"]
            flushes = flush_count(metrics_port)
            figures = play(server, [*options, "--warm-up=0"], SECONDS, None)
            flushes = flush_count(metrics_port) - flushes
            row(
                f"durable sends, {connections} x {window}",
                f"{figures['rate']:,.0f}/s, {flushes / SECONDS:,.0f} flushes/s of "
                f"{figures['messages'] / flushes:.0f}",
            )


# -- reopen and verify


def start_cpu_s(folder: Path) -> tuple[float, str]:
    """CPU seconds from the start of a broker until it is ready, and what it said."""
    process = subprocess.Popen(
        [*command_of(folder, []), "--log-level", "warning"],
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    said = []
    for line in process.stderr:
        said.append(line)
        if re.match(READY, line):
            break
    process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = status
    return usage.ru_utime + usage.ru_stime, "".join(said)


def log_size(folder: Path) -> int:
    files = sorted((folder / "commitlog").iterdir())
    blocks = files[-1].stat().st_blocks * 512 if files else 0
    return max(0, len(files) - 1) * GIGA + blocks


def load_and_kill(folder: Path, size: int) -> float:
    """Load a broker until its log has `size` bytes, then kill it; messages/s."""
    with serving(command_of(folder, []), READY, "stderr", None) as server:
        generator = subprocess.Popen(
            [
                str(BINARIES / "generator"),
                f"--port={server.port}",
                f"--server-pid={server.pid}",
                "--seconds=600",
                "--connections=4",
                "--window=64",
                "--body=128",
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        before, began = log_size(folder), time.perf_counter()
        while log_size(folder) < size and generator.poll() is None:
            time.sleep(0.1)
        rate = (log_size(folder) - before) / RECORD_SIZE
        rate /= time.perf_counter() - began
        os.kill(server.pid, signal.SIGKILL)
        generator.kill()
        generator.wait()
    return rate


def reopen(folder: Path, gigabytes: int, empty_s: float) -> None:
    rate = load_and_kill(folder, gigabytes * GIGA)
    vouched = Checkpoint.load(folder / "checkpoint").logics_physical_offset
    cpu_s, said = start_cpu_s(folder)
    match = re.search(r"from offset (\d+) to (\d+) in (\d+) ms", said)
    assert match, said
    start, end, wall_ms = map(int, match.groups())
    name = f"reopen after kill -9, {gigabytes} GB"
    row(name, f"{cpu_s - empty_s:.2f} CPU s beyond an empty start, {wall_ms} ms")
    row("  load before the kill", f"about {rate:,.0f} messages/s")
    row("  checkpoint to end", f"{(end - vouched) / 1e6:,.0f} MB")
    row("  read again", f"{(end - start) / 1e6:,.0f} MB")


def verify(folder: Path) -> None:
    cpu_s = time.process_time()
    verdict = Verification(StoreFiles(folder)).run()
    cpu_s = time.process_time() - cpu_s
    assert not verdict.damages, verdict.damages[:3]
    size = log_size(folder)
    row("verify", f"{size / GIGA / cpu_s:.2f} GB per CPU s of {size / GIGA:.1f} GB")


# -- index


def result_of(steps: Generator[Callable[[], object], None, list]) -> list:
    """Do the steps of a query here."""
    while True:
        try:
            next(steps)()
        except StopIteration as end:
            return end.value


def index(folder: Path) -> None:
    store = opened(folder)
    for number in range(TAIL_MESSAGES):
        store.writes.put(message(number))
    times = []
    for number in (0, TAIL_MESSAGES // 2, -1):
        key = f"{number % (2 * TAIL_MESSAGES):032d}"
        began = time.perf_counter()
        found = result_of(store.reads.query("Bench", key, 32, 0, 1 << 62))
        times.append(time.perf_counter() - began)
        assert len(found) == (number >= 0)
    row("query over 1 million unindexed", f"{max(times) * 1e3:.0f} ms")
    cpu_s = time.process_time()
    while store.index.lag_bytes:
        store.index.build()
    cpu_s = time.process_time() - cpu_s
    entries = sum(table.entry_count - 1 for table in store.index.files)
    row("index", f"{cpu_s / entries * 1e6:.2f} CPU s per million entries")
    store.close()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=int, nargs="*", default=[4])
    parser.add_argument("--directory", help="where the temporary stores go")
    options = parser.parse_args()
    sys.setswitchinterval(0.0005)
    with tempfile.TemporaryDirectory(prefix="rmq-", dir=options.directory) as root:
        folder = Path(root)
        build()
        for records in (1, GROUP_SIZE, 16 * GROUP_SIZE):
            bare_loop(folder, records)
        send_in_groups(folder / "sends")
        shutil.rmtree(folder / "sends")
        index(folder / "index")
        shutil.rmtree(folder / "index")
        empty_s = min(start_cpu_s(folder / f"empty{n}")[0] for n in range(3))
        row("start with an empty store", f"{empty_s:.2f} CPU s")
        for gigabytes in sorted(options.gigabytes):
            reopen(folder / "loaded", gigabytes, empty_s)
        if options.gigabytes:
            verify(folder / "loaded")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
