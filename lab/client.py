"""Throughput and latency of `rmq.client` against rmq on this machine.

    make lab NAME=client            all cases
    ARGS="--loops asyncio"       of one loop; --seconds for each case

CPU is that of the client's process, in seconds per million messages: it moves less with
the noise of a machine than a rate. The broker is a process of its own.
"""

import argparse
import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import anyio

from rmq.client import Client, Consumer, Message, Producer, blocking

ROOT = Path(__file__).resolve().parents[1]
TASKS = 64
CLIENTS = 4
SETTINGS = (
    "maxTransferCountOnMessageInMemory=1024",
    "maxTransferBytesOnMessageInMemory=4194304",
)


class Case:
    """Counts messages between `begin` and `end`."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: list[float] = []

    def begin(self) -> None:
        """Start the clocks."""
        self._wall, self._cpu = time.perf_counter(), time.process_time()

    def end(self, count: int) -> None:
        """Print what was measured."""
        wall = time.perf_counter() - self._wall
        cpu = time.process_time() - self._cpu
        line = f"{self.name:38} {count / wall:>10,.0f}/s {cpu / count * 1e6:7.2f} s/M"
        if self.times:
            self.times.sort()
            p50, p99 = (self.times[len(self.times) * p // 100] for p in (50, 99))
            line += f"  p50 {p50 * 1e6:.0f} us, p99 {p99 * 1e6:.0f} us"
        print(line, flush=True)


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker; its name server's address."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        settings = (
            "listenPort=0", "rmq.namesrv.listenPort=0", f"storePathRootDir={folder}",
            *SETTINGS,
        )  # fmt: skip
        options = [part for each in settings for part in ("--set", each)]
        process = subprocess.Popen(
            [sys.executable, "-m", "rmq", "broker", *options],
            cwd=ROOT,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            for line in process.stderr:
                if "namesrv=" in line:
                    yield line.split("namesrv=")[1].split()[0]
                    break
        finally:
            process.terminate()
            process.wait(20)
            process.stderr.close()


async def singles(name: str, address: str, seconds: float) -> None:
    """4 clients with 64 tasks each, 128 bytes."""
    case = Case(f"{name}: single sends {CLIENTS} x {TASKS}")
    end = time.perf_counter() + seconds
    count = 0

    async def work(producer: Producer) -> None:
        nonlocal count
        message = Message("Bench", bytes(128))
        while time.perf_counter() < end:
            await producer.send(message)
            count += 1

    async def one_client() -> None:
        async with (
            Client(address) as client,
            Producer(client) as producer,
            anyio.create_task_group() as tasks,
        ):
            for _ in range(TASKS):
                tasks.start_soon(work, producer)

    async with Producer(address) as producer:
        await producer.send(Message("Bench", b"first"))
    case.begin()
    async with anyio.create_task_group() as tasks:
        for _ in range(CLIENTS):
            tasks.start_soon(one_client)
    case.end(count)


async def alone(name: str, address: str, seconds: float) -> None:
    """One send after another."""
    case = Case(f"{name}: window 1")
    async with Producer(address) as producer:
        message = Message("Bench", bytes(128))
        await producer.send(message)
        end = time.perf_counter() + seconds
        case.begin()
        while (begun := time.perf_counter()) < end:
            await producer.send(message)
            case.times.append(time.perf_counter() - begun)
        case.end(len(case.times))


async def lists(name: str, address: str, seconds: float) -> None:
    """Lists of 256."""
    case = Case(f"{name}: send_many of 256")
    async with Producer(address) as producer:
        messages = [Message("Bench", bytes(128))] * 256
        await producer.send_many(messages)
        end, count = time.perf_counter() + seconds, 0
        case.begin()
        while time.perf_counter() < end:
            await producer.send_many(messages)
            count += len(messages)
        case.end(count)


async def enqueued(name: str, address: str, seconds: float) -> None:
    """`enqueue` with linger."""
    case = Case(f"{name}: enqueue, linger 5 ms")
    async with Producer(address, linger_ms=5) as producer:
        message = Message("Bench", bytes(128))
        end, count = time.perf_counter() + seconds, 0
        case.begin()
        while time.perf_counter() < end:
            for _ in range(1_000):
                await producer.enqueue(message)
            count += 1_000
        await producer.flush()
        case.end(count)


_groups = itertools.count()


async def consumed(name: str, address: str, size: int, fetch: int) -> None:
    """Messages of a size, a number in each pull."""
    topic, total = f"Consumed{size}", 200_000 if size < 1_000 else 100_000
    async with Producer(address) as producer:
        async with Consumer(address, "bench-look") as look:
            try:
                queues = await look.queues(topic)
            except Exception:  # the topic is new
                queues = []
        if not queues:
            messages = [Message(topic, bytes(size))] * 200
            for _ in range(total // 200):
                await producer.send_many(messages)
    case = Case(f"{name}: consume {size} B, {fetch} a pull")
    group = f"bench-{next(_groups)}"
    async with Consumer(
        address, group, topic, start="first", fetch_messages=fetch
    ) as consumer:
        count = 0
        case.begin()
        async for _ in consumer:
            count += 1
            if count == total:
                break
        case.end(count)


def threads(address: str, seconds: float) -> None:
    """The client for threads."""
    with blocking.Producer(address) as producer:
        message = Message("Bench", bytes(128))
        producer.send(message)
        for workers in (1, 8):
            case = Case(f"blocking: send, {workers} threads")
            end, counts = time.perf_counter() + seconds, [0] * workers

            def work(index: int, end: float = end, counts: list[int] = counts) -> None:
                while time.perf_counter() < end:
                    producer.send(message)
                    counts[index] += 1

            case.begin()
            running = [threading.Thread(target=work, args=[i]) for i in range(workers)]
            for each in running:
                each.start()
            for each in running:
                each.join()
            case.end(sum(counts))
        case = Case("blocking: enqueue")
        end, count = time.perf_counter() + seconds, 0
        case.begin()
        while time.perf_counter() < end:
            producer.enqueue(message)
            count += 1
        producer.flush()
        case.end(count)


async def all_cases(name: str, address: str, seconds: float) -> None:
    """Every case of one loop."""
    for case in (singles, alone, lists, enqueued):
        await case(name, address, seconds)
    for size in (128, 1_024):
        for fetch in (32, 1_024):
            await consumed(name, address, size, fetch)


def main() -> None:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--loops", default="asyncio,uvloop,trio")
    parser.add_argument("--seconds", type=float, default=3)
    options = parser.parse_args()
    run: Callable[..., Awaitable[None]] = all_cases
    with broker() as address:
        for name in options.loops.split(","):
            backend = "trio" if name == "trio" else "asyncio"
            anyio.run(
                run,
                name,
                address,
                options.seconds,
                backend=backend,
                backend_options={"use_uvloop": True} if name == "uvloop" else {},
            )
        threads(address, options.seconds)


if __name__ == "__main__":
    main()
