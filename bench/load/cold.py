"""The effect of a consumer that reads old messages from the disk on senders.

Fills a topic, stops the broker, drops the store's pages from the page cache, and starts
it again. Then senders run in slices, in turns without the reader and, once it has
begun, with it until it has read everything: one thread per queue pulls from the
beginning, as an ordinary consumer does. Prints the part of the log that was in memory
before it read (mincore) and its GB/s; for both kinds of slices the senders' latency and
the major faults of the broker's loop. New pages of the log are such faults too; a loop
that waits for the disk would have more of them beside the reader.

    python bench/load/cold.py [--gigabytes 2] [--body 4096] [--queues 1] [--rate 20000]

Needs room for all messages under `--directory`. Senders keep a rate, so that both kinds
of slices do the same work; with `--rate 0` they send as fast as they are answered, and
then each byte that the broker gives to the reader slows them. The reader has the lowest
priority, yet a machine with fewer cores than processes makes the senders wait for it;
`--warm` reads the same messages from memory and shows that part.
"""

import argparse
import ctypes
import json
import mmap
import os
import statistics
import tempfile
import threading
import time
from pathlib import Path

from delivery import GROUP, Client, broker, generate
from run import Server, build, major_faults, play

from rmq.protocol.codes import RequestCode

OLD, NEW = "BenchOld", "BenchNew"
SETTINGS = ["messageIndexEnable=false"]
RECORD_OVERHEAD = 230
"""Bytes of a stored message beside its body, roughly."""


def drop_pages(folder: Path) -> None:
    """Write a store's files back and have the kernel forget their pages."""
    for path in (p for p in folder.rglob("*") if p.is_file()):
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def resident_share(folder: Path, size: int) -> float:
    """Return the part of the first `size` bytes of a log that is in memory."""
    mincore = ctypes.CDLL(None, use_errno=True).mincore
    pages = resident = 0
    for path in sorted(folder.iterdir()):
        part = min(path.stat().st_size, size - pages * mmap.PAGESIZE)
        if part <= 0:
            break
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), part, mmap.MAP_PRIVATE)
            seen = (ctypes.c_ubyte * -(-part // mmap.PAGESIZE))()
            start = ctypes.addressof(ctypes.c_char.from_buffer(view))
            if mincore(ctypes.c_void_p(start), ctypes.c_size_t(part), seen):
                raise OSError(ctypes.get_errno(), "mincore")
        pages += len(seen)
        resident += sum(each & 1 for each in bytes(seen))
    return resident / pages


class Reader:
    """Reads every queue of the old topic in threads of its own."""

    def __init__(self, port: int, queues: int, limit_s: float) -> None:
        self._port = port
        self._limit_s = limit_s
        self.size = self.messages = 0
        self.seconds = 0.0
        self.slowest_s = 0.0
        self._threads = [
            threading.Thread(target=self._read, args=[queue]) for queue in range(queues)
        ]
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def start(self) -> None:
        """Begin to read, from the first message on."""
        for thread in self._threads:
            thread.start()

    @property
    def is_reading(self) -> bool:
        """Whether some queue is not read to its end."""
        return any(thread.is_alive() for thread in self._threads)

    def _read(self, queue: int) -> None:
        # on a machine of its own it would take none of the broker's time
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        client, offset = Client(self._port), 0
        while self.seconds < self._limit_s:
            fields = {
                "consumerGroup": GROUP, "topic": OLD, "queueId": str(queue),
                "queueOffset": str(offset), "maxMsgNums": "32", "sysFlag": "4",
                "commitOffset": "0", "suspendTimeoutMillis": "0", "subVersion": "0",
                "subscription": "*", "expressionType": "TAG",
            }  # fmt: skip
            asked = time.monotonic()
            answer = client.call(RequestCode.PULL_MESSAGE, fields)
            if answer.code:
                assert answer.code == 19, answer
                return
            following = int(answer.ext_fields["nextBeginOffset"])
            with self._lock:
                self.messages += following - offset
                self.size += len(answer.body)
                self.seconds = time.monotonic() - self._began
                self.slowest_s = max(self.slowest_s, time.monotonic() - asked)
            offset = following


def fill(server: Server, options: argparse.Namespace) -> int:
    """Store the old messages; how many there are."""
    count = int(options.gigabytes * 1e9) // (options.body + RECORD_OVERHEAD)
    load = [f"--topic={OLD}", f"--body={options.body}", f"--queues={options.queues}"]
    return generate(server, count, *load)["answered"]


def slices(server: Server, options: argparse.Namespace, is_wanted) -> list[dict]:
    """Send in slices while they are wanted."""
    load = ["--connections=4", f"--window={options.window}", f"--topic={NEW}"]
    if options.rate:
        load.append(f"--rate={options.rate}")
    found = []
    while is_wanted(len(found)):
        faults, began = major_faults(server.pid), time.monotonic()
        figures = play(server, [*load, "--warm-up=0.2"], options.seconds, None)
        faults = major_faults(server.pid) - faults
        figures["major_faults_per_s"] = faults / (time.monotonic() - began)
        found.append(figures)
    return found


def measure(folder: Path, options: argparse.Namespace) -> dict:
    log = folder / "commitlog"
    with broker(folder, SETTINGS, None) as server:
        count = fill(server, options)
    size = sum(path.stat().st_size for path in log.iterdir()) - (1 << 30)
    size = max(size, int(options.gigabytes * 5e8))
    if not options.warm:
        drop_pages(folder)
    with broker(folder, SETTINGS, None) as server:
        share = resident_share(log, size)
        play(server, [f"--topic={NEW}", "--warm-up=1"], 1, None)
        before = slices(server, options, lambda done: done < options.slices)
        reader = Reader(server.port, options.queues, options.limit)
        reader.start()
        during = slices(server, options, lambda _: reader.is_reading)
        after = slices(server, options, lambda done: done < options.slices)
    if reader.seconds < options.limit:
        assert reader.messages == count, (reader.messages, count)
    without, beside = summary(before + after), summary(during)
    return {
        "gigabytes": reader.size / 1e9,
        "messages": reader.messages,
        "in_memory_before": share,
        "read_gb_per_s": reader.size / 1e9 / reader.seconds,
        "slowest_pull_ms": reader.slowest_s * 1e3,
        "without": without,
        "beside": beside,
        "p99_ratio": beside["p99_us"] / without["p99_us"],
        "slices_p99_us": {
            "before": [each["p99_us"] for each in before],
            "beside": [each["p99_us"] for each in during],
            "after": [each["p99_us"] for each in after],
        },
    }


def summary(found: list[dict]) -> dict:
    names = (
        "rate", "server_cpu_s", "major_faults_per_s", "p50_us", "p99_us", "p999_us",
    )  # fmt: skip
    return {name: statistics.median(each[name] for each in found) for name in names}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gigabytes", type=float, default=2)
    parser.add_argument("--body", type=int, default=4_096)
    parser.add_argument("--queues", type=int, default=1, choices=range(1, 11))
    parser.add_argument("--window", type=int, default=16, help="of 4 senders")
    parser.add_argument("--rate", type=float, default=20_000, help="of all senders")
    parser.add_argument("--seconds", type=float, default=1, help="of a slice")
    parser.add_argument("--slices", type=int, default=5, help="before and after")
    parser.add_argument("--limit", type=float, default=600, help="seconds of reading")
    parser.add_argument("--warm", action="store_true", help="drop no pages")
    parser.add_argument("--directory", help="where the temporary store goes")
    options = parser.parse_args()
    build()
    with tempfile.TemporaryDirectory(prefix="rmq-cold-", dir=options.directory) as name:
        print(json.dumps(measure(Path(name) / "store", options), indent=1))


if __name__ == "__main__":
    main()
