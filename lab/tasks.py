"""Celery on rmq, and on Redis and RabbitMQ where the machine has them.

For each broker, in turns: a worker without work; tasks are enqueued before workers
start; a worker with processes runs them, then one with threads; then calls with a
result, one after the other.  It prints the median of the rounds beside the goals:
CPU seconds count, rates depend on the machine.  A broker that is not installed is named
and left out: Debian has `redis-server` and `rabbitmq-server`.

    .venv/bin/pip install redis
    make lab NAME=tasks ARGS="--rounds 3 --tasks 10000"
"""

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.load.run import resident_mib
from bench.load.turns import precise_cpu_seconds as cpu_seconds
from tests.interop.processes import Server, broker_arguments, free_port
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[1]
LIMIT_S = 120
SETTLE_S = 10
IDLE_S = 8
CALLS = 300
PAUSE_S = 0.005
"""Pause between two calls."""

ENQUEUE = """
import json, sys, time
from lab.tasks_app import app, noop
count = int(sys.argv[1])
noop.delay(0)
begun, used = time.perf_counter(), time.process_time()
with app.producer_or_acquire() as producer:
    for number in range(count - 1):
        noop.apply_async((number,), producer=producer)
print(json.dumps([time.perf_counter() - begun, time.process_time() - used]))
"""
CALL = """
import json, sys, time
from lab.tasks_app import add
add.delay(1, 1).get(timeout=30)
took, used = [], time.process_time()
for number in range(int(sys.argv[1])):
    begun = time.perf_counter()
    add.delay(number, 1).get(timeout=30)
    took.append(time.perf_counter() - begun)
    time.sleep(float(sys.argv[2]))
print(json.dumps([took, time.process_time() - used]))
"""
GOALS = {
    "enqueue: caller, CPU s / 1,000": 0.45,
    "enqueue: broker, CPU s / 1,000": 0.03,
    "run, prefork: worker, CPU s / 1,000": 1.0,
    "run, prefork: broker, CPU s / 1,000": 0.10,
    "run, threads: worker, CPU s / 1,000": 0.40,
    "run, threads: broker, CPU s / 1,000": 0.08,
    "call and result: p50 ms": 4.0,
    "call and result: p99 ms": 12.0,
    "call and result: broker, CPU ms": 0.5,
    "idle: broker, ms/s": 2.0,
    "idle: worker, ms/s": 1.0,
}
"""Goals of rmq, on a machine with two quiet cores."""


class Broker(NamedTuple):
    """A running broker: its URL for Celery, and the process that works."""

    url: str
    pid: int


@contextmanager
def rmq(folder: Path) -> Iterator[Broker]:
    """A broker with the keys of `--for tasks`, without a console."""
    arguments = broker_arguments(folder / "store", "rmq.console=false")
    server = Server(*arguments, "--for", "tasks")
    try:
        yield Broker(f"rmq://{server.namesrv}//", server.pid)
    finally:
        server.kill()


@contextmanager
def redis(folder: Path) -> Iterator[Broker]:
    """Redis without persistence."""
    port = free_port()
    command = ["redis-server", "--port", str(port), "--bind", "127.0.0.1",
               "--save", "", "--dir", str(folder)]  # fmt: skip
    with started(command, {}, lambda: is_open(port)) as process:
        yield Broker(f"redis://127.0.0.1:{port}/0", process.pid)


RABBITMQ_SERVERS = "/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server"


@contextmanager
def rabbitmq(folder: Path) -> Iterator[Broker]:
    """RabbitMQ with classic queues."""
    port, names_port = free_port(), free_port()
    settings = {
        "HOME": str(folder),
        "ERL_EPMD_PORT": str(names_port),
        "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
        "RABBITMQ_NODE_PORT": str(port),
        "RABBITMQ_DIST_PORT": str(free_port()),
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
            "-kernel inet_dist_use_interface {127,0,0,1}"
        ),
        "RABBITMQ_NODENAME": f"lab{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
    }
    # the script in PATH of Debian changes the user, who has no right to the folder
    program = next(filter(shutil.which, RABBITMQ_SERVERS))
    names = ["epmd", "-address", "127.0.0.1", "-port", str(names_port)]
    with (
        started(names, {}, lambda: is_open(names_port)),
        started([program], settings, lambda: is_open(port)) as process,
    ):
        beams = [each for each in tree(process.pid) if name_of(each).startswith("beam")]
        yield Broker(f"amqp://guest:guest@127.0.0.1:{port}//", beams[0])


@contextmanager
def started(
    command: list[str], settings: dict[str, str], is_ready: Callable[[], bool]
) -> Iterator[subprocess.Popen[bytes]]:
    """A program; it and all that it has started end with the block."""
    process = subprocess.Popen(
        command,
        env=os.environ | settings,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_until(is_ready, limit_s=LIMIT_S)
        yield process
    finally:
        for each in tree(process.pid):  # `su` begins a session of its own
            with suppress(ProcessLookupError):
                os.kill(each, signal.SIGKILL)
        process.wait()


BROKERS = {
    "rmq": (rmq, "", "rmq"),
    "Redis": (redis, "redis-server", "redis"),
    "RabbitMQ": (rabbitmq, "rabbitmq-server", "amqp"),
}
"""By name, how it starts, and the program and the library that it needs."""


def is_open(port: int) -> bool:
    """Whether something listens."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


# -- processes


def children_of(pid: int) -> list[int]:
    """The processes that a process has started."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        found += map(int, path.read_text().split())
    return found


def tree(pid: int) -> list[int]:
    """A process with all below it."""
    found = [pid]
    for each in found:
        found += children_of(each)
    return found


def name_of(pid: int) -> str:
    """The name of a program."""
    return Path(f"/proc/{pid}/comm").read_text().strip()


def cpu_of_tree(pid: int) -> float:
    """CPU seconds of a process and all below it."""
    return sum(map(cpu_seconds, tree(pid)))


class Bench:
    """The measurements at one broker."""

    def __init__(self, broker: Broker, folder: Path, tasks: int) -> None:
        self._broker = broker
        self._folder = folder
        self._tasks = tasks
        self._counts = folder / "counts"
        self._environment = os.environ | {
            "LAB_URL": broker.url,
            "LAB_COUNTS": str(self._counts),
            "PYTHONPATH": str(ROOT),
        }

    def run(self) -> dict[str, float]:
        """All figures of one round."""
        self._empty_counts()
        with self._worker("prefork") as worker:
            time.sleep(SETTLE_S)
            found = self._idle("idle", worker.pid)
        for pool in ("prefork", "threads"):
            self._empty_counts()
            found |= self._enqueue()
            found |= self._run_tasks(pool)
        url = self._broker.url
        found |= self._call(url if url.startswith("redis") else "rpc://")
        found["memory of the broker, MiB"] = resident_mib(self._broker.pid)
        return found

    def _empty_counts(self) -> None:
        shutil.rmtree(self._counts, ignore_errors=True)
        self._counts.mkdir()

    def _done(self) -> int:
        files = [each.read_bytes() for each in self._counts.iterdir()]
        return sum(struct.unpack("<q", each)[0] for each in files if len(each) == 8)

    def _python(self, code: str, *arguments: str, **more: str) -> list:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            env=self._environment | more,
            cwd=self._folder,
            stdout=subprocess.PIPE,
            check=True,
            timeout=LIMIT_S,
        )
        return json.loads(done.stdout)

    def _enqueue(self) -> dict[str, float]:
        before = cpu_seconds(self._broker.pid)
        took_s, used_s = self._python(ENQUEUE, str(self._tasks))
        thousands = self._tasks / 1_000
        used_by_broker_s = cpu_seconds(self._broker.pid) - before
        return {
            "enqueue: caller, CPU s / 1,000": used_s / thousands,
            "enqueue: broker, CPU s / 1,000": used_by_broker_s / thousands,
            "enqueue: tasks/s": self._tasks / took_s,
        }

    @contextmanager
    def _worker(self, pool: str, **more: str) -> Iterator[subprocess.Popen[bytes]]:
        with (self._folder / f"{pool}.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "celery", "-A", "lab.tasks_app", "worker",
                 "-P", pool, "-c", "2", "-l", "INFO", "-n", f"{pool}@lab"],
                env=self._environment | more,
                cwd=self._folder,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )  # fmt: skip
        try:
            wait_until(
                lambda: b"ready." in (self._folder / f"{pool}.log").read_bytes(),
                limit_s=LIMIT_S,
            )
            yield process
            process.terminate()
            process.wait(30)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _run_tasks(self, pool: str) -> dict[str, float]:
        broker = self._broker.pid
        first, last = self._tasks * 0.1, self._tasks * 0.98
        with self._worker(pool) as worker:
            wait_until(lambda: self._done() >= first, limit_s=LIMIT_S)
            begun_s, begun = time.perf_counter(), self._done()
            used_s, used_by_broker_s = cpu_of_tree(worker.pid), cpu_seconds(broker)
            wait_until(lambda: self._done() >= last, limit_s=LIMIT_S)
            took_s, done = time.perf_counter() - begun_s, self._done() - begun
            used_s = cpu_of_tree(worker.pid) - used_s
            used_by_broker_s = cpu_seconds(broker) - used_by_broker_s
            wait_until(lambda: self._done() >= self._tasks, limit_s=LIMIT_S)
            found = {
                f"run, {pool}: worker, CPU s / 1,000": used_s / done * 1_000,
                f"run, {pool}: broker, CPU s / 1,000": used_by_broker_s / done * 1_000,
                f"run, {pool}: tasks/s": done / took_s,
            }
            if pool == "prefork":
                time.sleep(1)
                found |= self._idle("a second after the tasks", worker.pid)
        return found

    def _idle(self, what: str, worker: int) -> dict[str, float]:
        """The figures of a worker without tasks, and of its broker."""
        before = cpu_seconds(self._broker.pid), cpu_of_tree(worker)
        time.sleep(IDLE_S)
        after = cpu_seconds(self._broker.pid), cpu_of_tree(worker)
        return {
            f"{what}: broker, ms/s": (after[0] - before[0]) / IDLE_S * 1_000,
            f"{what}: worker, ms/s": (after[1] - before[1]) / IDLE_S * 1_000,
        }

    def _call(self, results: str) -> dict[str, float]:
        more = {"LAB_RESULTS": results}
        with self._worker("prefork", **more) as worker:
            self._python(CALL, "20", str(PAUSE_S), **more)
            before = cpu_seconds(self._broker.pid), cpu_of_tree(worker.pid)
            took, used_s = self._python(CALL, str(CALLS), str(PAUSE_S), **more)
            after = cpu_seconds(self._broker.pid), cpu_of_tree(worker.pid)
        return {
            "call and result: p50 ms": statistics.median(took) * 1_000,
            "call and result: p99 ms": statistics.quantiles(took, n=100)[-1] * 1_000,
            "call and result: broker, CPU ms": (after[0] - before[0]) / CALLS * 1_000,
            "call and result: worker, CPU ms": (after[1] - before[1]) / CALLS * 1_000,
            "call and result: caller, CPU ms": used_s / CALLS * 1_000,
        }


def measure(kind: str, tasks: int) -> dict[str, float]:
    """One round at one broker."""
    start, *_ = BROKERS[kind]
    with tempfile.TemporaryDirectory(prefix="rmq-lab-tasks-") as name:
        folder = Path(name)
        with start(folder) as broker:
            return Bench(broker, folder, tasks).run()


def print_table(rounds: dict[str, list[dict[str, float]]]) -> None:
    """Print the medians beside the goals."""
    kinds = list(rounds)
    print("|", " | ".join(["median", *kinds, "goal of rmq"]), "|")
    print("|---|" + "---:|" * (len(kinds) + 1))
    for name in next(iter(rounds.values()))[0]:
        cells = [
            f"{statistics.median(each[name] for each in rounds[kind]):.3g}"
            for kind in kinds
        ]
        goal = GOALS.get(name)
        print("|", " | ".join([name, *cells, f"{goal:g}" if goal else ""]), "|")


def main() -> None:
    """Measure in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tasks", type=int, default=10_000)
    parser.add_argument("--brokers", nargs="+", choices=BROKERS, default=[*BROKERS])
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    rounds: dict[str, list[dict[str, float]]] = {}
    for kind in options.brokers:
        _, program, library = BROKERS[kind]
        if (not program or shutil.which(program)) and find_spec(library):
            rounds[kind] = []
        else:
            needs = f"{program} and the library {library}"
            print(f"{kind}: needs {needs}; its column is left out", flush=True)
    for _ in range(options.rounds):
        for kind, found in rounds.items():
            found.append(measure(kind, options.tasks))
    print_table(rounds)


if __name__ == "__main__":
    main()
