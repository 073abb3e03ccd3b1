"""The ordinary hour: few messages a second, consumers that keep up and wait.

rmq, Java RocketMQ 5.5.0 and the C echo in turns on this machine: sends at 100, 1,000
and 3,000 a second on one connection with one request in flight; deliveries to groups
whose pulls wait; 500 quiet consumers; no client at all. CPU is that of the server's
process per message; a delivery costs what the process uses beyond the sends alone at
the same rate. Times of deliveries are from the start of the send to the receipt.
Wake-ups are the process's voluntary switches a second. Java is warmed up for 60 s;
without Java or Maven it does not take part. Prints the table and writes JSON to
bench/results/; `--document` puts the table into docs/internals/measurements.md.

    python lab/ordinary.py [--rounds 3] [--seconds 4] [--document]
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import paced, run
from lab import (
    compare_java,
    side_by_side,
)
from tests.interop.toolchains import JavaServers

PACED = Path(paced.__file__)
WARM_UP_S = 60.0
BRIEF_WARM_UP_S = 2.0
SETTLE_S = 2.0
LATE_S = 60.0
CONSUMERS = 500
RATES = (100, 1_000, 3_000)
MARKS = "<!-- ordinary: begin -->", "<!-- ordinary: end -->"


class Delivery(NamedTuple):
    """Groups that follow one sender."""

    rate: int
    queues: int
    groups: int

    @property
    def name(self) -> str:
        """The row of the table."""
        groups = "1 group" if self.groups == 1 else f"{self.groups} groups"
        return f"{self.rate:,}/s, {self.queues} queues, {groups}"


DELIVERIES = (
    Delivery(1_000, 4, 1),
    Delivery(3_000, 4, 1),
    Delivery(3_000, 80, 2),
    Delivery(1_000, 80, 10),
    Delivery(100, 80, 100),
)


class Usage:
    """What a process uses from now on."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._began = time.monotonic()
        self._cpu_s, self._switches = self._read()

    def _read(self) -> tuple[float, int]:
        switches = 0
        for path in Path(f"/proc/{self._pid}/task").glob("*/status"):
            _, _, rest = path.read_text().partition("\nvoluntary_ctxt_switches:")
            switches += int(rest.split(maxsplit=1)[0])
        return time.clock_gettime((~self._pid << 3) | 2), switches

    def end(self) -> dict[str, float]:
        """Return CPU seconds, their share of a core, and wake-ups a second."""
        seconds = time.monotonic() - self._began
        cpu_s, switches = self._read()
        return {
            "cpu_s": cpu_s - self._cpu_s,
            "cpu_percent": (cpu_s - self._cpu_s) / seconds * 100,
            "wake_ups": max(0, switches - self._switches) / seconds,
        }


def start(part: str, server: run.Server, *options: str) -> subprocess.Popen[str]:
    """Start a part of the load."""
    command = [sys.executable, str(PACED), part, str(server.port), *options]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def result_of(process: subprocess.Popen[str], seconds: float) -> dict:
    """Wait for a part that takes so long; what it measured."""
    output, _ = process.communicate(timeout=2 * seconds + LATE_S)
    if process.returncode:
        raise SystemExit(f"{process.args} ended with {process.returncode}")
    return json.loads(output.splitlines()[-1])


def send(server: run.Server, rate: int, seconds: float, queues: int = 4) -> dict:
    """Send for some seconds; CPU in microseconds a message and times of answers."""
    usage = Usage(server.pid)
    found = result_of(
        start(
            "send", server,
            f"--rate={rate}", f"--seconds={seconds}", f"--queues={queues}",
        ),
        seconds,
    )  # fmt: skip
    used = usage.end()
    return {"cpu_us": used["cpu_s"] / found["messages"] * 1e6, **found}


def deliver(server: run.Server, case: Delivery, seconds: float) -> dict:
    """Send while groups follow; what a delivery costs beyond its send."""
    alone = send(server, case.rate, seconds, case.queues)
    with started_part(
        "follow", server,
        f"--groups={case.groups}", f"--queues={case.queues}",
        f"--seconds={seconds + 1.5}",
    ) as followers:  # fmt: skip
        usage = Usage(server.pid)
        found = send(server, case.rate, seconds, case.queues)
        received = result_of(followers, seconds)
        used = usage.end()
    wanted = found["messages"] * case.groups
    if received["messages"] != wanted:
        raise SystemExit(f"{received['messages']} of {wanted} messages came: {case}")
    extra_us = used["cpu_s"] * 1e6 - alone["cpu_us"] * found["messages"]
    return {
        "delivery_us": extra_us / wanted,
        "message_us": used["cpu_s"] / found["messages"] * 1e6,
        "messages_a_pull": wanted / max(1, received["pulls"]),
        "p50_us": received["p50_us"],
        "p99_us": received["p99_us"],
    }


@contextmanager
def started_part(
    part: str, server: run.Server, *options: str
) -> Iterator[subprocess.Popen[str]]:
    """Start a part and wait until it is ready; it does not outlive the block."""
    with start(part, server, *options) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            if line != "ready\n":
                raise SystemExit(f"{part} did not become ready: {line!r}")
            time.sleep(0.3)
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def watch(server: run.Server, seconds: float) -> dict:
    """Let a while pass."""
    time.sleep(SETTLE_S)
    usage = Usage(server.pid)
    time.sleep(seconds)
    return usage.end()


def quiet(server: run.Server, seconds: float) -> dict:
    """Let a while pass with many consumers that wait."""
    options = f"--connections={CONSUMERS}", f"--seconds={seconds + SETTLE_S + 2}"
    with started_part("wait", server, *options):
        return watch(server, seconds)


def medians(rounds: list[dict]) -> dict:
    """Return the median of each figure."""
    return {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}


def measure(options: argparse.Namespace, servers: dict[str, run.Server]) -> dict:
    """Play every case on every server in turns."""
    brokers = {kind: each for kind, each in servers.items() if kind != "echo"}
    result: dict[str, dict] = {"sends": {}, "deliveries": {}, "rest": {}}
    for server in brokers.values():
        for queues in sorted({delivery.queues for delivery in DELIVERIES}):
            paced.create_topic(server.port, queues)
            send(server, 1_000, 1, queues)
    for rate in RATES:
        rounds: dict[str, list[dict]] = {kind: [] for kind in servers}
        for _ in range(options.rounds):
            for kind, server in servers.items():
                rounds[kind].append(send(server, rate, options.seconds))
        result["sends"][rate] = {kind: medians(each) for kind, each in rounds.items()}
        print(f"  sends at {rate:,}/s", flush=True)
    for case in DELIVERIES:
        rounds = {kind: [] for kind in brokers}
        for _ in range(options.rounds):
            for kind, server in brokers.items():
                rounds[kind].append(deliver(server, case, options.seconds))
        figures = {kind: medians(each) for kind, each in rounds.items()}
        result["deliveries"][case.name] = figures
        print(f"  deliveries at {case.name}", flush=True)
    for name, part in (("nobody", watch), (f"{CONSUMERS} quiet consumers", quiet)):
        result["rest"][name] = {
            kind: part(server, options.seconds * 2) for kind, server in brokers.items()
        }
        print(f"  {name}", flush=True)
    return result


def tables(result: dict) -> Iterator[tuple[str, tuple[str, ...], list[tuple]]]:
    """Title, head and rows of each table."""
    labels = side_by_side.LABELS
    yield (
        "Sends, one connection, one in flight, 128 B",
        ("rate", "server", "CPU µs a message", "x echo", "p50 µs", "p99 µs"),
        [
            (
                f"{rate:,}/s",
                labels[kind],
                f"{f['cpu_us']:.0f}",
                f"{f['cpu_us'] / servers['echo']['cpu_us']:.1f}",
                f"{f['p50_us']:.0f}",
                f"{f['p99_us']:.0f}",
            )
            for rate, servers in result["sends"].items()
            for kind, f in servers.items()
        ],
    )
    yield (
        "Deliveries to pulls that wait",
        (
            "load", "server", "CPU µs a delivery", "whole broker, µs a message sent",
            "messages a pull", "p50 µs from send to receipt", "p99 µs",
        ),
        [
            (
                name,
                labels[kind],
                f"{f['delivery_us']:.1f}",
                f"{f['message_us']:.0f}",
                f"{f['messages_a_pull']:.1f}",
                f"{f['p50_us']:.0f}",
                f"{f['p99_us']:.0f}",
            )
            for name, servers in result["deliveries"].items()
            for kind, f in servers.items()
        ],
    )  # fmt: skip
    yield (
        "Quiet",
        ("load", "server", "CPU % of a core", "wake-ups a second"),
        [
            (name, labels[kind], f"{f['cpu_percent']:.2f}", f"{f['wake_ups']:.0f}")
            for name, servers in result["rest"].items()
            for kind, f in servers.items()
        ],
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 21))
    parser.add_argument("--seconds", type=float, default=4, help="of each turn")
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S, help="of Java")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--document", action="store_true", help="renew the document")
    options = parser.parse_args()
    compare_java.end_children_on_sigterm()
    missing = "left out" if options.no_java else JavaServers.missing()
    run.build()
    with tempfile.TemporaryDirectory(prefix="rmq-ordinary-") as name, ExitStack() as up:
        folder = Path(name)
        servers = {
            "echo": up.enter_context(compare_java.echo_server()),
            "rmq": up.enter_context(
                compare_java.rmq_broker(folder / "rmq", "ASYNC_FLUSH", *options.set)
            ),
        }
        if missing:
            print(f"Java not run: {missing}")
        else:
            JavaServers().prepare()
            java = compare_java.java_broker(folder / "java", {})
            servers["java"] = up.enter_context(java)
            print("Java is warming up", flush=True)
            warm_up = run.PROFILES[compare_java.WARM_UP_CASE]
            run.play(servers["java"], warm_up, options.warm_up, None)
        run.play(servers["rmq"], run.PROFILES["send-4x64"], BRIEF_WARM_UP_S, None)
        result = measure(options, servers)
    result["when"] = time.strftime("%Y-%m-%d", time.gmtime())
    path = run.write_result("ordinary", result)
    for table in tables(result):
        print(side_by_side.table_text(*table))
    print(f"written to {path.relative_to(ROOT)}")
    if options.document:
        parts = [side_by_side.table_markdown(*table) for table in tables(result)]
        document = ROOT / "docs" / "internals/measurements.md"
        side_by_side.replace_between(document, MARKS, "\n".join(parts))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
