"""What the console and its relatives cost: memory, CPU, pauses, the first paint.

A broker with 10,000 topics of 8 queues. *Pause* is the longest wait of a ping on a
connection of its own, one each millisecond, as in `lab/growth.py`; 3 to 4 ms are the
machine itself when it is not idle. The first paint needs Debian's Chromium and
selenium (`make lab NAME=console-test` installs it). Writes JSON to bench/results/.

    python lab/console.py [--topics 10000] [--seconds 20]
"""

import argparse
import http.client
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import run
from lab import (
    compare_java,
    growth,
)

OPENINGS = 10
LOOKED_AT_S = 16
"""A broker takes samples more often for 15 s after somebody looked."""

QUEUES = 8
WEB = ROOT / "rmq" / "console" / "web"
LISTS = (
    "topics", "topics?sort=out", "topics?sort=lag", "topics?sort=name",
    "topics?sort=name&q=77", "topics?from=500&n=200", "groups", "groups?sort=out",
    "overview", "delays", "transactions", "dead", "brokers", "find?q=99",
)  # fmt: skip


def free_port() -> int:
    """Return a port that is free now."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def ask(port: int, path: str) -> tuple[bytes, float]:
    """Return an answer of the console, and its time in milliseconds."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", f"/api/{path}")
    answer = connection.getresponse()
    body = answer.read()
    connection.close()
    if answer.status != 200:
        raise SystemExit(f"{path}: {answer.status} {body[:200]!r}")
    return body, (time.perf_counter() - began) * 1_000


@contextmanager
def looking(port: int, view: str) -> Iterator[None]:
    """Keep a stream open, and read what comes."""
    command = ["curl", "-sN", f"http://127.0.0.1:{port}/api/live?view={view}"]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def share(pid: int, seconds: float) -> float:
    """Return the share of a core that a process takes, in percent."""
    began = growth.cpu_s(pid)
    time.sleep(seconds)
    return (growth.cpu_s(pid) - began) / seconds * 100


def idle(options: argparse.Namespace) -> dict:
    """Measure memory and CPU with and without the console, when nobody looks."""
    found = {}
    for name, settings in (
        ("without", []),
        ("with", ["rmq.console=true", "rmq.consolePort=0"]),
    ):
        with growth.broker(options, 20_000, *settings) as one:
            time.sleep(3)
            percent = share(one.server.pid, options.seconds)
            memory = compare_java.memory_mib(one.server.pid)["own_mib"]
        found[name] = {"cpu_percent": percent, "own_mib": memory}
    found["more_mib"] = found["with"]["own_mib"] - found["without"]["own_mib"]
    found["more_cpu_percent"] = (
        found["with"]["cpu_percent"] - found["without"]["cpu_percent"]
    )
    return found


def large(options: argparse.Namespace) -> dict:
    """Measure views, streams, searches and `rmq top` on a broker with many topics."""
    port = free_port()
    settings = ["rmq.console=true", f"rmq.consolePort={port}"]
    with growth.broker(options, 20_000, *settings) as one:
        server, seconds = one.server, options.seconds
        count = options.topics
        growth.crowd_part(server, "topics", count=count, queues=QUEUES)
        growth.crowd_part(server, "commits", count=count)
        messages = ["--topics=100", "--queues=4", "--topic=All", "--warm-up=0",
                    "--connections=4", "--window=64", "--messages=40000"]  # fmt: skip
        run.play(server, messages, 60, None)
        time.sleep(2)
        found: dict = {"topics": count}
        with growth.Pings(server) as pings:
            time.sleep(5)
        found["pause_alone_ms"] = pings.worst_ms
        times = {}
        with growth.Pings(server) as pings:
            for path in LISTS:
                times[path] = median(ask(port, path)[1] for _ in range(3))
        found["lists_ms"], found["pause_lists_ms"] = times, pings.worst_ms
        topic = json.loads(ask(port, "topics?n=1&sort=out")[0])["rows"][0]["name"]
        with growth.Pings(server) as pings:
            body, took = ask(port, f"messages?topic={topic}&q=nothing")
        found["search_ms"], found["pause_search_ms"] = took, pings.worst_ms
        found["search_looked"] = json.loads(body)["looked"]
        time.sleep(LOOKED_AT_S)
        found["nobody_percent"] = share(server.pid, seconds)
        for view in ("overview", "topics"):
            with looking(port, view):
                time.sleep(3)
                found[f"{view}_percent"] = share(server.pid, seconds)
        found |= of_tool(server, "top", ["-d", "1", "--json"], seconds)
        time.sleep(LOOKED_AT_S)
        return found | of_tool(server, "tail", ["--json"], seconds)


def of_tool(server: run.Server, name: str, options: list[str], seconds: float) -> dict:
    """Return the CPU of a command that looks on, and of the broker meanwhile."""
    address = f"127.0.0.1:{server.port}"
    process = subprocess.Popen(
        [sys.executable, "-m", "rmq", name, "-b", address, *options],
        stdout=subprocess.DEVNULL, cwd=ROOT,
    )  # fmt: skip
    try:
        time.sleep(3)
        began = growth.cpu_s(process.pid), growth.cpu_s(server.pid)
        time.sleep(seconds)
        tool, broker = growth.cpu_s(process.pid), growth.cpu_s(server.pid)
    finally:
        process.terminate()
        process.wait()
    return {
        f"{name}_tool_percent": (tool - began[0]) / seconds * 100,
        f"{name}_broker_percent": (broker - began[1]) / seconds * 100,
    }


def paint(options: argparse.Namespace) -> dict:
    """Open the overview ten times, each in a fresh page without a cache."""
    from tests.console.browser import browser, missing

    if reason := missing():
        return {"first_paint": f"not measured: {reason}"}
    port = free_port()
    settings = ["rmq.console=true", f"rmq.consolePort={port}"]
    with growth.broker(options, 20_000, *settings), browser(port) as page:
        page.driver.execute_cdp_cmd("Network.enable", {})
        page.driver.execute_cdp_cmd("Network.setCacheDisabled", {"cacheDisabled": True})
        page.open("#/")
        page.settled()
        paints, shifts = [], []
        for _ in range(OPENINGS):
            page.open("#/")
            page.settled()
            time.sleep(1.5)
            paints.append(page.run(
                "return performance.getEntriesByName('first-contentful-paint')[0]"
                ".startTime"
            ))  # fmt: skip
            shifts.append(page.driver.execute_async_script(
                "const done = arguments[0]; let sum = 0;"
                "new PerformanceObserver((list) => { for (const each of"
                " list.getEntries()) sum += each.value; }).observe({type:"
                " 'layout-shift', buffered: true}); setTimeout(() => done(sum), 300)"
            ))  # fmt: skip
    return {
        "first_paint_ms": median(paints), "first_paints_ms": paints,
        "layout_shift": max(shifts),
    }  # fmt: skip


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20)
    parser.add_argument("--directory", help="where the stores are made")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    run.build()
    result = {"page_bytes": sum(path.stat().st_size for path in WEB.iterdir())}
    result |= {"idle": idle(options), "large": large(options)} | paint(options)
    print(json.dumps(result, indent=2))
    run.write_result("console", result)


if __name__ == "__main__":
    main()
