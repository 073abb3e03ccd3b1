"""Real consumers at an ordinary rate: what a broker spends, how late listeners hear.

The push consumers of Java 5.5.0, Go 2.1.2 and the C++ core (PyPI `rocketmq`), each a
group of its own, follow one sender of bench/load/paced.py through the same topic, first
beside rmq, then beside Java RocketMQ 5.5.0; both register with a name server of rmq.
The times are from the start of the send to the listener, on the machine's monotonic
clock. A minute of the same load comes first and does not count: JVMs are slow then. CPU
is that of the broker's process. Prints a table and writes JSON to bench/results/.

    python lab/listeners.py [--minutes 10] [--rate 1000] [--servers rmq,java]
"""

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import paced, run
from lab import (
    compare_java,
    ordinary,
    side_by_side,
)
from tests.interop.drivers import driving
from tests.interop.toolchains import Go, Java, JavaServers, Pip

CLIENTS = (Java, Go, Pip)
QUEUES = 4
WARM_UP_S = 60.0
QUIET_S = 5.0
"""Between the last send and the end of the consumers."""


@contextmanager
def name_server() -> Iterator[str]:
    """Start a name server; its address."""
    command = [sys.executable, "-m", "rmq", "namesrv", "--set", "listenPort=0"]
    with run.serving(command, r"ready namesrv=\S+:(\d+)", "stderr", None) as server:
        yield f"127.0.0.1:{server.port}"


@contextmanager
def broker(kind: str, folder: Path, namesrv: str) -> Iterator[run.Server]:
    """Start one of the two brokers, with the topic of the load."""
    if kind == "java":
        started = compare_java.java_broker(folder / kind, {"namesrvAddr": namesrv})
    else:
        started = compare_java.rmq_broker(
            folder / kind, "ASYNC_FLUSH", f"namesrvAddr={namesrv}"
        )
    with started as server:
        paced.create_topic(server.port, QUEUES)
        yield server


def follow(
    clients: list, folder: Path, namesrv: str, server: run.Server,
    options: argparse.Namespace,
) -> dict:  # fmt: skip
    """Send while all consumers listen; what the broker used and each consumer saw."""
    topic = paced.topic_of(QUEUES)
    untimed = int(options.rate * options.warm_up)
    with ExitStack() as up:
        drivers = {
            client.name: up.enter_context(
                driving(
                    client, folder / str(number), "push", namesrv, topic, 0,
                    f"group=Listener-{number}", f"timed={untimed}",
                )
            )
            for number, client in enumerate(clients)
        }  # fmt: skip
        for driver in drivers.values():
            driver.wait_ready()
        ordinary.send(server, options.rate, options.warm_up, QUEUES)
        usage = ordinary.Usage(server.pid)
        sent = ordinary.send(server, options.rate, options.minutes * 60, QUEUES)
        used = usage.end()
        time.sleep(QUIET_S)
        reports = {name: driver.finish() for name, driver in drivers.items()}
    for name, report in reports.items():
        report["count"] -= untimed
        if report["count"] < sent["messages"]:
            raise SystemExit(f"{name}: {report['count']} of {sent['messages']} came")
    return {
        "messages": sent["messages"],
        "seconds": sent["seconds"],
        "cpu_us": used["cpu_s"] / sent["messages"] * 1e6,
        "cpu_percent": used["cpu_percent"],
        "wake_ups": used["wake_ups"],
        "send_p50_us": sent["p50_us"],
        "send_p99_us": sent["p99_us"],
        "listeners": reports,
    }


def rows(result: dict) -> Iterator[tuple]:
    """One row for each consumer of each broker."""
    for kind, f in result["brokers"].items():
        for name, report in f["listeners"].items():
            yield (
                side_by_side.LABELS[kind],
                name,
                f"{report['p50_ns'] / 1e3:.0f}",
                f"{report['p99_ns'] / 1e3:.0f}",
                f"{report['count'] - f['messages']}",
                f"{f['cpu_percent']:.1f}",
                f"{f['cpu_us']:.0f}",
            )


HEAD = (
    "broker", "listener", "p50 µs", "p99 µs", "came twice", "broker's CPU % of a core",
    "µs a message sent",
)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--rate", type=int, default=1_000)
    parser.add_argument("--warm-up", type=float, default=WARM_UP_S)
    parser.add_argument(
        "--servers", type=lambda text: text.split(","), default=["rmq", "java"]
    )
    options = parser.parse_args()
    compare_java.end_children_on_sigterm()
    run.build()
    clients = [kind() for kind in CLIENTS if not kind.missing()]
    for each in (*clients, JavaServers()):
        each.prepare()
    result: dict = {"load": os.getloadavg()[0], "rate": options.rate, "brokers": {}}
    for kind in options.servers:
        with (
            tempfile.TemporaryDirectory(prefix="rmq-listeners-") as name,
            name_server() as namesrv,
            broker(kind, Path(name), namesrv) as server,
        ):
            result["brokers"][kind] = follow(
                clients, Path(name), namesrv, server, options
            )
        print(f"  {kind}: {result['brokers'][kind]}", flush=True)
    result["when"] = time.strftime("%Y-%m-%d", time.gmtime())
    path = run.write_result("listeners", result)
    print(side_by_side.table_text("Listeners", HEAD, list(rows(result))))
    print(f"written to {path.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
