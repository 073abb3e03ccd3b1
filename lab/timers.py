"""Timed messages beside Java's broker: lateness, rates, starts, a crowded second.

For each broker, Java first, after a warm-up:

* messages at a steady rate, due some seconds after their send, on their way to a group
  whose pulls wait: how long after the second of their time they are received;
* many messages for one second: rate and CPU of the broker from the first send until all
  wait in a slot, and from their second until all are in their topic;
* the start with more that wait for one second;
* sends to another connection, one in flight: before that second, and while its messages
  are delivered.

    python lab/timers.py --java
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from bench.load import paced, run
from bench.load.turns import cpu_seconds
from lab import ordinary
from lab.compare_java import (
    end_children_on_sigterm,
    java_broker,
    rmq_broker,
)
from tests.interop.toolchains import JavaServers

QUEUES = 4
TOGETHER = 100
"""Requests that are sent at once; twice as many are on their way."""

AFTER_MS = 2_500
BODY = b"x" * paced.BODY_SIZE
KEY = b"0" * 32
RUNTIME_INFO = 28
MARGIN_S = 15.0
ANSWERS_S = 10.0
LIMIT_S = 240.0
AWAY_S = 86_400
"""From now until nobody looks any more."""

SENDS_A_SECOND = 500.0
IDLE_ROUNDS = 3

Figures = Iterator[tuple[str, str]]


class Timed:
    """Sends many messages for one second, and sees where they are."""

    def __init__(self, server: run.Server) -> None:
        self._pid = server.pid
        self._peer = paced.connect(server.port)
        self._port = server.port

    def close(self) -> None:
        """Close the connection."""
        self._peer.close()

    def waiting(self) -> int:
        """How many messages wait in slots.

        Java answers an exception in its first second.
        """
        deadline = time.monotonic() + ANSWERS_S
        while True:
            header, body = paced.call(self._peer, paced.frame(RUNTIME_INFO, {}))
            text = body.partition(b'"timerCongestNum":"')[2].partition(b'"')[0]
            if text:
                return int(text)
            if time.monotonic() > deadline:
                raise SystemExit(f"the broker does not say how many wait: {header!r}")
            time.sleep(0.1)

    def stored(self) -> int:
        """How many messages their topic has."""
        return sum(paced.end_offsets(self._port, QUEUES))

    def send(self, due_s: int, count: int) -> None:
        """Send so many; every answer is checked."""
        frames = [self._frame(queue, due_s) for queue in range(QUEUES)]
        on_the_way = sent = 0
        data = b""
        while sent < count or on_the_way:
            while sent < count and on_the_way <= TOGETHER:
                numbers = range(sent, min(sent + TOGETHER, count))
                self._peer.sendall(
                    b"".join(
                        frames[each % QUEUES].replace(KEY, b"%032d" % each)
                        for each in numbers
                    )
                )
                sent += len(numbers)
                on_the_way += len(numbers)
            data += self._peer.recv(1 << 18)
            answered, data = _answers(data)
            on_the_way -= answered

    def _frame(self, queue: int, due_s: int) -> bytes:
        return paced.send_frame(
            paced.topic_of(QUEUES), queue, BODY,
            f"TIMER_DELIVER_MS\x01{due_s * 1_000}\x02UNIQ_KEY\x01{KEY.decode()}",
        )  # fmt: skip

    def cost(self, begun: float, reached: Callable[[], bool]) -> tuple[float, float]:
        """Wait until something is reached; seconds since `begun`, and CPU seconds."""
        cpu_s = cpu_seconds(self._pid)
        deadline = time.monotonic() + LIMIT_S
        while not reached():
            if time.monotonic() > deadline:
                raise SystemExit("the timer of the broker does not go on")
            time.sleep(0.02)
        return time.time() - begun, cpu_seconds(self._pid) - cpu_s

    def taken(self, due_s: int, count: int) -> tuple[float, float]:
        """Send so many and wait for their slots; seconds and CPU seconds."""
        wanted = self.waiting() + count
        cpu_s, begun = cpu_seconds(self._pid), time.time()
        self.send(due_s, count)
        sent_cpu_s = cpu_seconds(self._pid) - cpu_s
        took_s, rest_cpu_s = self.cost(begun, lambda: self.waiting() >= wanted)
        return took_s, sent_cpu_s + rest_cpu_s

    def delivered(self, due_s: int, count: int) -> tuple[float, float]:
        """Wait for the deliveries of a second; seconds and CPU seconds from then on."""
        if time.time() > due_s:
            raise SystemExit("the messages were due before all had a slot")
        wanted = self.stored() + count
        time.sleep(max(0.0, due_s - time.time()))
        return self.cost(due_s, lambda: self.stored() >= wanted)


def _answers(data: bytes) -> tuple[int, bytes]:
    """Count whole answers; the bytes after them."""
    count = at = 0
    while len(data) - at >= 4:
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        if paced.OK not in data[at:end]:
            raise SystemExit(f"the broker answers {data[at:end]!r}")
        count += 1
        at = end
    return count, data[at:]


def late(server: run.Server, options: argparse.Namespace) -> Figures:
    """How long after their second messages are received."""
    seconds = options.seconds
    with ordinary.started_part(
        "follow", server,
        f"--queues={QUEUES}", "--groups=1", f"--seconds={seconds + AFTER_MS / 1e3 + 3}",
    ) as follower:  # fmt: skip
        sender = ordinary.start(
            "send", server, f"--rate={options.rate}", f"--seconds={seconds}",
            f"--queues={QUEUES}", f"--after-ms={AFTER_MS}",
        )  # fmt: skip
        sent = ordinary.result_of(sender, seconds)
        received = ordinary.result_of(follower, seconds)
    if received["messages"] != sent["messages"]:
        raise SystemExit(f"{received['messages']} of {sent['messages']} came")
    what = f"at {options.rate:,.0f}/s, after their second, ms"
    yield f"{what}: earliest", f"{received['least_us'] / 1e3:.1f}"
    yield f"{what}: p50", f"{received['p50_us'] / 1e3:.1f}"
    yield f"{what}: p99", f"{received['p99_us'] / 1e3:.1f}"


def rates(timed: Timed, count: int) -> Figures:
    """Rate and CPU on the way in and out."""
    due_s = int(time.time() + count / 4_000 + MARGIN_S / 3)
    for way, part in (("in", timed.taken), ("out", timed.delivered)):
        took_s, cpu_s = part(due_s, count)
        yield f"{way}, messages/s", f"{count / took_s:,.0f}"
        yield f"{way}, CPU µs a message", f"{cpu_s / count * 1e6:.1f}"


def crowded(
    server: run.Server, timed: Timed, due_s: int, options: argparse.Namespace
) -> Figures:
    """Sends before and while a second with many messages is delivered."""
    yield f"start with {options.waiting:,} that wait, s", f"{server.start_s:.2f}"
    wanted = timed.stored() + options.waiting
    if timed.waiting() < options.waiting:
        raise SystemExit(f"{timed.waiting()} of {options.waiting} wait after the start")
    ordinary.send(server, SENDS_A_SECOND, options.storm_seconds, 8)
    idle = [
        ordinary.send(server, SENDS_A_SECOND, options.storm_seconds, 8)["p99_us"]
        for _ in range(IDLE_ROUNDS)
    ]
    yield "p99 of sends before, µs", f"{statistics.median(idle):.0f}"
    if time.time() > due_s:
        raise SystemExit("the second was over before the sends")
    time.sleep(due_s - time.time())
    found = ordinary.send(server, SENDS_A_SECOND, options.storm_seconds, 8)
    left = wanted - timed.stored()
    yield "p50 of sends in the crowded second, µs", f"{found['p50_us']:.0f}"
    yield "p99 of sends in the crowded second, µs", f"{found['p99_us']:.0f}"
    yield "of it, not delivered after these sends", f"{left:,}"
    took_s, _ = timed.cost(due_s, lambda: timed.stored() >= wanted)
    yield f"{options.waiting:,} delivered after, s", f"{took_s:.1f}"


def play(
    start: Callable[[], AbstractContextManager[run.Server]],
    options: argparse.Namespace,
) -> Figures:
    """All figures of one kind of broker."""
    with start() as server, closing(Timed(server)) as timed:
        for queues in (QUEUES, 2 * QUEUES):
            paced.create_topic(server.port, queues)
        for _ in rates(timed, options.messages):
            pass  # the warm-up
        yield from late(server, options)
        yield from rates(timed, options.messages)
        begun = time.time()
        timed.taken(int(begun + AWAY_S), options.messages // 2)
        rate = options.messages // 2 / (time.time() - begun)
        due_s = int(time.time() + options.waiting / rate * 1.4 + 2 * MARGIN_S)
        timed.taken(due_s, options.waiting)
    with start() as server, closing(Timed(server)) as timed:
        yield from crowded(server, timed, due_s, options)


def main() -> None:
    """Measure, and print a line for each figure."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--java", action="store_true")
    parser.add_argument("--messages", type=int, default=60_000, help="of one second")
    parser.add_argument("--waiting", type=int, default=1_000_000, help="at the start")
    parser.add_argument("--rate", type=float, default=1_000)
    parser.add_argument("--seconds", type=float, default=8, help="at this rate")
    parser.add_argument("--storm-seconds", type=float, default=3, help="of sends")
    options = parser.parse_args()
    end_children_on_sigterm()
    with tempfile.TemporaryDirectory(prefix="rmq-timers-") as name:
        kinds = {"rmq": lambda: rmq_broker(Path(name) / "rmq", "ASYNC_FLUSH")}
        if options.java:
            JavaServers().prepare()
            kinds = {"Java": lambda: java_broker(Path(name) / "java", {}), **kinds}
        for kind, start in kinds.items():
            for what, figure in play(start, options):
                print(f"{kind:5} {what:50} {figure:>10}", flush=True)


if __name__ == "__main__":
    main()
