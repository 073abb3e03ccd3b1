"""Java's client 5.5.0 by TLS and without: its rate, and what a send costs the broker.

One producer of each kind, asynchronous, 256 messages in flight, sends to one broker of
rmq, in turns. Clients and broker share the cores. Prints rates, and the CPU of broker
and client for a send; then ratios of the medians. The first turns warm the JVMs up.

    python lab/java_tls.py [--rounds 5] [--seconds 5] [--warm-up 4]
"""

import argparse
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import run
from bench.load.turns import precise_cpu_seconds
from tests.interop.processes import broker_arguments, serving
from tests.interop.toolchains import Java, cache_folder, compile_java

KINDS = {"plain": (), "TLS": ("-Dtls.enable=true",)}
TOPIC = "Load"


class Turn(NamedTuple):
    """Figures of a turn."""

    rate: float
    broker_us: float
    client_us: float


class Client:
    """A JVM that sends whenever it is told to."""

    def __init__(self, process: subprocess.Popen, broker_pid: int) -> None:
        self._process, self._pid = process, broker_pid
        self._line("ready")

    def _line(self, wanted: str = "") -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(wanted) and (wanted or line[0].isdigit()):
                return line
        raise SystemExit("the client ended")

    def play(self) -> Turn:
        """Let it send once."""
        assert self._process.stdin is not None
        pids = self._pid, self._process.pid
        cpu = [precise_cpu_seconds(pid) for pid in pids]
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        count, nanos = map(int, self._line().split())
        used = [precise_cpu_seconds(pid) for pid in pids]
        costs = [
            (now - then) / count * 1e6 for now, then in zip(used, cpu, strict=True)
        ]
        return Turn(count / nanos * 1e9, *costs)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=int, default=4, help="turns before")
    options = parser.parse_args()
    java = Java()
    if missing := java.missing():
        print(f"not run: {missing}")
        return 2
    java.prepare()
    libraries = cache_folder() / f"java-{java.version}"
    source = ROOT / "bench/load/AsyncLoad.java"
    classes = compile_java("async-load", libraries, [source])
    turns: dict[str, list[Turn]] = {kind: [] for kind in KINDS}
    with (
        tempfile.TemporaryDirectory(prefix="rmq-java-tls-") as folder,
        serving(*broker_arguments(Path(folder) / "store")) as server,
        ExitStack() as stack,
    ):
        total = options.rounds + options.warm_up
        words = server.namesrv, TOPIC, str(options.seconds), str(total)
        clients = {}
        for kind, properties in KINDS.items():
            command = ["java", "-Xmx256m", *properties, "-cp",
                       f"{classes}:{libraries}/*", "AsyncLoad", *words]  # fmt: skip
            process = stack.enter_context(
                subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
                )
            )
            stack.callback(process.kill)
            clients[kind] = Client(process, server.pid)
        for number in range(total):
            for kind, client in clients.items():
                turn = client.play()
                if number >= options.warm_up:
                    turns[kind].append(turn)
                print(
                    f"{kind:6} {turn.rate:8,.0f}/s, us of CPU: broker"
                    f" {turn.broker_us:.1f}, client {turn.client_us:.1f}",
                    flush=True,
                )
    found = {
        kind: Turn(*map(statistics.median, zip(*each, strict=True)))
        for kind, each in turns.items()
    }
    plain, tls = found["plain"], found["TLS"]
    print(
        f"TLS: {tls.rate / plain.rate:.2f} of the plain rate,"
        f" {tls.broker_us / plain.broker_us:.2f} x the broker's CPU of a send,"
        f" {tls.client_us / plain.client_us:.2f} x the client's"
    )
    run.write_result("java-tls", {kind: each._asdict() for kind, each in found.items()})
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
