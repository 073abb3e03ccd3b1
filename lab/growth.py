"""How rmq's cost grows: queues, topics, members, pulls that wait, groups, connections.

Every row has the worst *pause* beside its work: the longest wait of a ping on a
connection of its own, one each millisecond. CPU is that of the broker's process.
Sizes are options, so that a small run takes a minute; each kind of row has a broker of
its own. With `--java` Java RocketMQ 5.5.0 has rows of names (with 1,000 topics),
members, pulls and shapes, too; it is warmed up for 8 s. Prints the tables and writes
JSON to bench/results/; `--document` puts them into docs/internals/measurements.md.

    python lab/growth.py [--queues 4,10000,40000] [--parts queues,names,…]
"""

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Self

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import crowd, paced, run
from lab import (
    compare_java,
    side_by_side,
)

QUEUES_OF_A_TOPIC = 4
SENDS = ["--connections=4", "--window=64"]
NEW_KEYS = ["--mixed"]
"""So that each message has a key of its own: else one topic would have one key."""

SEND_S = 2.0
ONE_TOPIC = f"--queues={QUEUES_OF_A_TOPIC}"
ROUNDS = 3
FOLLOW_S = 8
IN_FLIGHT = 256
JAVA_WARM_UP_S = 8.0
JAVA_TOPICS, JAVA_MEMBERS, JAVA_PULLS = 1_000, 250, 10_000
JAVA_PROFILES = "send-4x64", "batch-32", "batch-256"
"""With more of them Java's rows take minutes."""

TOO_SLOW = "create 5,000 at once"
STOP_LIMIT_S = 120
MANY = 1_000
"""Queues from which on the cost of a first message is not that of the first sends."""

BROKER_READY = re.compile(r"\[\S+\] ready broker=\S+ address=\S+:(\d+)")
MARKS = "<!-- growth: begin -->", "<!-- growth: end -->"


class Broker:
    """A broker process that may be ended and started again on its folder."""

    def __init__(self, folder: Path, descriptors: int, settings: list[str]) -> None:
        self._folder = folder
        self._descriptors = descriptors
        self._settings = settings
        self._process: subprocess.Popen[str] | None = None
        self.server = run.Server(0, 0, 0.0)
        self.start_cpu_s = 0.0

    def start(self) -> float:
        """Start it and return the seconds until it was ready."""

        def limit() -> None:
            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (self._descriptors, hard))

        began = time.perf_counter()
        self._process = subprocess.Popen(
            run.broker_command(self._folder, self._settings),
            cwd=ROOT, text=True, stderr=subprocess.PIPE, preexec_fn=limit,
        )  # fmt: skip
        ready = r"ready broker=\S+ address=\S+:(\d+)"
        lines = self._process.stderr
        self.server = run.wait_ready(self._process, lines, ready, began)
        self.start_cpu_s = cpu_s(self.server.pid)
        return self.server.start_s

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """End it with a signal and wait."""
        process = self._process
        if process is None:
            return
        process.send_signal(number)
        try:
            process.communicate(timeout=STOP_LIMIT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise SystemExit(f"the broker did not stop in {STOP_LIMIT_S} s") from None
        finally:
            self._process = None

    def restart(self, number: signal.Signals) -> tuple[float, float]:
        """End and start it; seconds and CPU seconds of the start."""
        self.end(number)
        return self.start(), self.start_cpu_s

    @property
    def descriptors(self) -> int:
        """How many it has open."""
        return len(os.listdir(f"/proc/{self.server.pid}/fd"))

    @property
    def mappings(self) -> int:
        """How many parts its memory has."""
        return Path(f"/proc/{self.server.pid}/maps").read_text().count("\n")

    def log_files(self) -> list[Path]:
        """Return the files of the log, the oldest first."""
        return sorted((self._folder / "commitlog").glob("0*"))

    def queue_bytes(self) -> int:
        """Blocks that queue files take."""
        files = (self._folder / "consumequeue").rglob("0*")
        return sum(path.stat().st_blocks * 512 for path in files)


def cpu_s(pid: int) -> float:
    """CPU seconds of a process."""
    return time.clock_gettime((~pid << 3) | 2)


@contextmanager
def broker(
    options: argparse.Namespace, descriptors: int = 20_000, *settings: str
) -> Iterator[Broker]:
    """Run a broker with an empty store until the block ends."""
    with tempfile.TemporaryDirectory(
        prefix="rmq-growth-", dir=options.directory
    ) as name:
        one = Broker(Path(name), descriptors, [*options.set, *settings])
        try:
            one.start()
            yield one
        finally:
            one.end()


@contextmanager
def side(options: argparse.Namespace, name: str) -> Iterator[run.Server]:
    """Run rmq's broker, or Java's, with an empty store until the block ends."""
    if name == "rmq":
        with broker(options) as one:
            yield one.server
        return
    with (
        tempfile.TemporaryDirectory(prefix="java-growth-", dir=options.directory) as at,
        compare_java.java_broker(Path(at) / "java", {}) as server,
    ):
        run.play(server, SENDS, JAVA_WARM_UP_S, None)
        yield server


def sides(options: argparse.Namespace) -> tuple[str, ...]:
    """Return whose rows a table has."""
    return ("rmq", "Java") if options.java else ("rmq",)


class Pings:
    """One ping a millisecond while a block runs; its worst wait in milliseconds."""

    def __init__(self, server: run.Server) -> None:
        self._server = server
        self.worst_ms = self.busy_ms = self.p99_ms = 0.0

    def __enter__(self) -> Self:
        """Start the process that pings."""
        self._process = subprocess.Popen(
            [
                sys.executable, crowd.__file__, "ping", str(self._server.port),
                f"--pid={self._server.pid}",
            ],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(self, *_: object) -> None:
        """Let it end."""
        output, _ = self._process.communicate(timeout=20)
        found = json.loads(output)
        self.worst_ms, self.p99_ms = found["worst_ms"], found["p99_ms"]
        self.busy_ms = found["busy_ms"]


def crowd_part(server: run.Server, part: str, **numbers: float) -> dict:
    """Play a part of bench/load/crowd.py; what it measured, and the broker's CPU."""
    options = [f"--{name}={value}" for name, value in numbers.items()]
    began = cpu_s(server.pid)
    done = subprocess.run(
        [sys.executable, crowd.__file__, part, str(server.port), *options],
        stdout=subprocess.PIPE, text=True, check=True, timeout=300,
    )  # fmt: skip
    found = json.loads(done.stdout)
    return {**found, "cpu_s": cpu_s(server.pid) - began}


# -- queues that have messages


def grow_queues(options: argparse.Namespace) -> list[dict]:
    """Sends to one topic and to all, disk, descriptors and starts."""
    return [queues_row(options, count) for count in options.queues]


def queues_row(options: argparse.Namespace, count: int) -> dict:
    """Measure one number of queues."""
    topics = max(1, count // QUEUES_OF_A_TOPIC)
    all_queues = [f"--topics={topics}", ONE_TOPIC, "--topic=All"]
    one_topic = [ONE_TOPIC, "--topic=One"]
    with broker(options, options.descriptors) as one:
        first = ["--warm-up=0", f"--messages={topics * QUEUES_OF_A_TOPIC}"]
        crowd_part(one.server, "topics", count=topics, queues=QUEUES_OF_A_TOPIC)
        began = cpu_s(one.server.pid)
        run.play(one.server, [*SENDS, *all_queues, *first], 300, None)
        first_us = (cpu_s(one.server.pid) - began) / count * 1e6
        start_s, start_cpu_s = one.restart(signal.SIGTERM)
        disk_kib = one.queue_bytes() / count / 1024
        loads = {
            "one": [*SENDS, *NEW_KEYS, *one_topic],
            "all": [*SENDS, *NEW_KEYS, *all_queues],
        }
        for load in loads.values():
            run.play(one.server, load, SEND_S, None)
        rounds: dict[str, list[dict]] = {"one": [], "all": []}
        with Pings(one.server) as pings:
            for _ in range(ROUNDS):
                for name, load in loads.items():
                    played = run.play(one.server, load, SEND_S, None)
                    rounds[name].append(played)
        figures = {name: run.medians(each) for name, each in rounds.items()}
        row = {
            "queues": count,
            "first_us": first_us if count >= MANY else "",
            "disk_kib": disk_kib,
            "start_s": start_s,
            "start_cpu_s": start_cpu_s,
            "one_s_per_million": figures["one"]["s_per_million"],
            "all_s_per_million": figures["all"]["s_per_million"],
            "all_rate": figures["all"]["rate"],
            "all_p99_us": figures["all"]["p99_us"],
            "pause_ms": pings.worst_ms,
            "descriptors": one.descriptors,
            "mappings": one.mappings,
            "own_mib": compare_java.memory_mib(one.server.pid)["own_mib"],
        }
        row["kill_start_s"], row["kill_start_cpu_s"] = one.restart(signal.SIGKILL)
    return row


# -- names alone


def grow_names(options: argparse.Namespace) -> list[dict]:
    """Pauses by requests that have all topics in them, and the making of topics."""
    rows = [row for count in options.names for row in names_rows(options, "rmq", count)]
    if options.java:
        rows += names_rows(options, "Java", JAVA_TOPICS)
    return rows


def names_rows(options: argparse.Namespace, name: str, count: int) -> Iterator[dict]:
    """Measure with so many topics, of which one group has offsets in each."""
    with side(options, name) as server:
        crowd_part(server, "topics", count=count, queues=4)
        crowd_part(server, "commits", count=count)
        time.sleep(1)
        for part, seconds in crowd.NAME_PARTS.items():
            if name == "Java" and part == TOO_SLOW:
                continue
            with Pings(server) as pings:
                found = crowd_part(server, part, count=count, seconds=seconds)
            yield {
                "server": name,
                "topics": count,
                "request": part,
                "rate": found["rate"],
                "cpu_us": found["cpu_s"] / found["answers"] * 1e6,
                "pause_ms": pings.worst_ms,
            }
        with Pings(server) as pings:
            time.sleep(options.registration)
        yield {
            "server": name,
            "topics": count,
            "request": f"nothing for {options.registration} s, with a registration",
            "rate": 0,
            "cpu_us": 0,
            "pause_ms": pings.worst_ms,
        }


# -- members, pulls, groups, connections


def grow_members(options: argparse.Namespace) -> list[dict]:
    """Members of one group that join, and leave together."""
    rows = []
    for count, name in product(options.members, sides(options)):
        if name == "Java" and count > JAVA_MEMBERS:
            continue
        with side(options, name) as server:
            with Pings(server) as pings:
                found = crowd_part(server, "members", count=count)
                time.sleep(1)
            row = {"server": name, "members": count, **found}
            rows.append({**row, "pause_ms": pings.worst_ms})
    return rows


def grow_pulls(options: argparse.Namespace) -> list[dict]:
    """Pulls that wait and end together.

    Twice: pings would take more of the broker's CPU than 10,000 pulls.
    """
    rows = []
    for count, name in product(options.pulls, sides(options)):
        if name == "Java" and count != JAVA_PULLS:
            continue
        with side(options, name) as server:
            with Pings(server) as pings:
                crowd_part(server, "pulls", count=count)
            found = crowd_part(server, "pulls", count=count)
            row = {"server": name, "pulls": count, "answers": found["answers"]}
            row["cpu_us"] = found["cpu_s"] / count * 1e6
            rows.append({**row, "pause_ms": pings.worst_ms})
    return rows


def grow_groups(options: argparse.Namespace) -> list[dict]:
    """Groups that follow one topic with 2,000 messages a second."""
    from lab import ordinary

    rows = []
    for count in options.groups:
        with broker(options) as one:
            paced.create_topic(one.server.port, QUEUES_OF_A_TOPIC)
            ordinary.send(one.server, 1_000, 1)
            with (
                ordinary.started_part(
                    "follow", one.server, f"--groups={count}", f"--seconds={FOLLOW_S}"
                ) as followers,
                Pings(one.server) as pings,
            ):
                sent = ordinary.send(one.server, 2_000, 5)
                received = ordinary.result_of(followers, FOLLOW_S)
            rows.append(
                {
                    "groups": count,
                    "messages": sent["messages"],
                    "received": received["messages"],
                    "send_p99_us": sent["p99_us"],
                    "delivery_p99_us": received["p99_us"],
                    "pause_ms": pings.worst_ms,
                }
            )
    return rows


def grow_connections(options: argparse.Namespace) -> list[dict]:
    """256 requests in flight over more and more connections, beside the echo."""
    rows = []
    command = [str(run.BINARIES / "echo"), str(run.RUN_LIMIT_S)]
    for count in options.connections:
        in_flight = min(count, IN_FLIGHT)
        load = [f"--connections={count}", "--window=1", f"--in-flight={in_flight}"]
        with (
            run.serving(command, r"ready (\d+)", "stdout", None) as echo,
            broker(options, 20_000, "rmq.maxConnections=12000") as one,
        ):
            run.play(one.server, load, 1, None)
            with Pings(one.server) as pings:
                played = [
                    run.play(each, load, SEND_S, None) for each in (echo, one.server)
                ]
            ceiling, found = (each["s_per_million"] for each in played)
            rows.append(
                {
                    "connections": count,
                    "s_per_million": found,
                    "echo_s_per_million": ceiling,
                    "pause_ms": pings.worst_ms,
                }
            )
    return rows


# -- sizes of a message, a topic, a batch; rebuild


def grow_shapes(options: argparse.Namespace) -> list[dict]:
    """Profiles of bench/load/run.py beyond old limits."""
    names = ["send-4x64", "send-1100-queues", "send-32-properties"]
    names += ["batch-32", "batch-256"]
    rows = []
    for one, name in product(sides(options), names):
        if one == "Java" and name not in JAVA_PROFILES:
            continue
        with side(options, one) as server:
            load = run.prepare(server, name)
            with Pings(server) as pings:
                played = [
                    run.play(server, load, SEND_S / 2, None) for _ in range(ROUNDS)
                ]
        figures = run.medians(played)
        row = {key: figures[key] for key in ("rate", "s_per_million", "p99_us")}
        rows.append({"server": one, "profile": name, **row, "pause_ms": pings.worst_ms})
    return rows


# -- brokers


def grow_brokers(options: argparse.Namespace) -> list[dict]:
    """One broker, and as many as there are cores, each with a generator of its own."""
    rows = []
    for count in (1, len(os.sched_getaffinity(0))):
        with many_brokers(options, count) as (ports, pids):
            play_together(ports, 1)
            began = sum(map(cpu_s, pids))
            played = play_together(ports, 2 * SEND_S)
            used_s = sum(map(cpu_s, pids)) - began
        messages = sum(each["messages"] for each in played)
        rows.append(
            {
                "brokers": count,
                "rate": sum(each["rate"] for each in played),
                "s_per_million": used_s / messages * 1e6,
                "p99_us": max(each["p99_us"] for each in played),
            }
        )
    return rows


@contextmanager
def many_brokers(
    options: argparse.Namespace, count: int
) -> Iterator[tuple[list[int], list[int]]]:
    """Run `rmq broker --brokers`; ports and processes of the brokers."""
    with tempfile.TemporaryDirectory(
        prefix="rmq-growth-", dir=options.directory
    ) as name:
        command = run.broker_command(Path(name), options.set)
        command += ["--brokers", str(count)]
        with subprocess.Popen(
            command, cwd=ROOT, text=True, stderr=subprocess.PIPE
        ) as process:
            try:
                ports = []
                for line in process.stderr:
                    if found := BROKER_READY.match(line):
                        ports.append(int(found[1]))
                    if line.startswith("ready container"):
                        break
                assert len(ports) == count, f"{len(ports)} of {count} brokers serve"
                folder = Path(f"/proc/{process.pid}/task/{process.pid}/children")
                yield ports, [int(pid) for pid in folder.read_text().split()]
            finally:
                process.terminate()
                process.wait(STOP_LIMIT_S)


def play_together(ports: list[int], seconds: float) -> list[dict]:
    """Drive every broker at the same time; what each generator measured."""
    servers = [run.Server(os.getpid(), port, 0.0) for port in ports]
    with ThreadPoolExecutor(len(servers)) as pool:
        return list(
            pool.map(lambda each: run.play(each, SENDS, seconds, None), servers)
        )


PARTS: dict[str, Callable[[argparse.Namespace], list[dict]]] = {
    "queues": grow_queues,
    "names": grow_names,
    "members": grow_members,
    "pulls": grow_pulls,
    "groups": grow_groups,
    "connections": grow_connections,
    "shapes": grow_shapes,
    "brokers": grow_brokers,
}


def text_of(value: object) -> str:
    """Return a figure with three digits or so."""
    if not isinstance(value, float):
        return f"{value:,}" if isinstance(value, int) else str(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def tables(result: dict) -> Iterator[tuple[str, tuple[str, ...], list[tuple]]]:
    """Title, head and rows of each part."""
    for part, rows in result["parts"].items():
        head = tuple(rows[0])
        body = [tuple(text_of(row[name]) for name in head) for row in rows]
        yield part, tuple(name.replace("_", " ") for name in head), body


def numbers(text: str) -> list[int]:
    """Parse sizes that commas separate."""
    return [int(part) for part in text.split(",")]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--queues", type=numbers, default=[4, 40_000])
    parser.add_argument("--names", type=numbers, default=[10_000, 30_000])
    parser.add_argument("--members", type=numbers, default=[250, 1_000])
    parser.add_argument("--pulls", type=numbers, default=[1_000, 10_000])
    parser.add_argument("--groups", type=numbers, default=[1, 100])
    parser.add_argument("--connections", type=numbers, default=[16, 256, 9_500])
    parser.add_argument("--descriptors", type=int, default=1_024, help="for queues")
    parser.add_argument("--registration", type=int, default=35, help="seconds")
    parser.add_argument("--directory", help="where the temporary stores go")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--java", action="store_true", help="also measure Java")
    parser.add_argument("--document", action="store_true", help="renew the document")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"unknown parts {sorted(unknown)}")
    run.build()
    resource.setrlimit(
        resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2
    )
    result: dict = {"when": time.strftime("%Y-%m-%d"), "parts": {}}
    failed = False
    for part in parts:
        try:
            result["parts"][part] = PARTS[part](options)
            print(f"  {part}", flush=True)
        except (SystemExit, OSError, subprocess.SubprocessError) as error:
            print(f"  {part} failed: {error}", file=sys.stderr, flush=True)
            failed = True  # the other parts took minutes
    path = run.write_result("growth", result)
    for table in tables(result):
        print(side_by_side.table_text(*table))
    print(f"written to {path.relative_to(ROOT)}")
    if options.document:
        found = [side_by_side.table_markdown(*table) for table in tables(result)]
        document = ROOT / "docs" / "internals/measurements.md"
        side_by_side.replace_between(document, MARKS, "\n".join(found))
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
