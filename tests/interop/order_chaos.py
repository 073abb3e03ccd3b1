"""Ordered consumption by Java's client while brokers and members start and stop.

    python tests/interop/order_chaos.py [--seconds 600] [--seed N]

Messages are sent to four queues, one after the other. Consumers of one group join,
leave and are killed; the broker is restarted and killed. What happens when is drawn
from the seed, which is printed. A queue is in order if each of its messages comes for
the first time after all before it, whoever gets it; those that come again are counted.
"""

import argparse
import itertools
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "plugins")]

from rmq.protocol.codes import RequestCode, ResponseCode  # noqa: E402
from tests.history import Fault, History, Place, Read  # noqa: E402
from tests.interop import wire  # noqa: E402
from tests.interop.drivers import Driver  # noqa: E402
from tests.interop.interchange import Line  # noqa: E402
from tests.interop.messages import NAME, body_of  # noqa: E402
from tests.interop.processes import Server, broker_arguments, free_port  # noqa: E402
from tests.interop.toolchains import Java  # noqa: E402
from tests.waiting import wait_until  # noqa: E402

TOPIC, GROUP, QUEUES = "T", "G", 4
MOST_CONSUMERS = 3
SEND_PAUSE_S = 0.01
PAUSES_S = 1.0, 4.0
"""Least and most time between two events."""

SETTLE_S = 90
"""A queue that a killed consumer held is free after 60 s."""

HASTE = {
    "rocketmq.client.rebalance.waitInterval": 1_000,
    "rocketmq.client.rebalance.lockInterval": 1_000,
}


class HastyJava(Java):
    """Java's client that looks for its share every second, not every 20."""

    def command(self, main_class: str, *arguments: str) -> list[str]:
        command = super().command(main_class, *arguments)
        return [command[0], *(f"-D{k}={v}" for k, v in HASTE.items()), *command[1:]]


def closed(line: Line | None) -> None:
    if line is not None:
        line.close()


class Sender(threading.Thread):
    """Sends until told to stop; a message that is not acknowledged is sent again."""

    def __init__(self, address: str) -> None:
        super().__init__(daemon=True)
        self._address = address
        self._is_over = threading.Event()
        self.history = History()

    def run(self) -> None:
        line: Line | None = None
        for number in itertools.count():
            while not self._is_over.wait(SEND_PAUSE_S):
                try:
                    line = line or Line(self._address)
                    if self._send(line, number):
                        break
                except OSError:
                    closed(line)
                    line = None
            if self._is_over.is_set():
                closed(line)
                return

    def _send(self, line: Line, number: int) -> bool:
        properties = {
            "KEYS": f"Key{number}", "TAGS": "Tag", "number": number, "name": NAME,
        }  # fmt: skip
        fields = {
            "a": "PG", "b": TOPIC, "c": "TBW102", "d": QUEUES, "e": number % QUEUES,
            "f": 0, "g": int(time.time() * 1_000), "h": 0, "j": 0, "k": "false",
            "i": "".join(f"{k}\x01{v}\x02" for k, v in properties.items()),
        }  # fmt: skip
        self.history.invoke(number)
        answer = line.call(RequestCode.SEND_MESSAGE_V2, fields, body_of(number))
        is_stored = answer.code == ResponseCode.SUCCESS
        place = place_of(answer.ext_fields) if is_stored else None
        self.history.answer(number, answer.code, place)
        return is_stored

    def stop(self) -> None:
        self._is_over.set()
        self.join(30)


class Chaos:
    """A broker, its consumers, and what can happen to them."""

    def __init__(self, folder: Path, java: Java, seed: int) -> None:
        self._folder, self._java = folder, java
        self._random = random.Random(seed)
        self._namesrv = Server("namesrv", "--set", "listenPort=0")
        arguments = broker_arguments(folder / "store", f"listenPort={free_port()}")
        self._arguments = [*arguments, "-n", self._namesrv.namesrv]
        self._broker = Server(*self._arguments)
        self.address = self._broker.address
        self._running: list[Driver] = []
        self.consumers: list[Driver] = []
        self.events: Counter[str] = Counter()

    def close(self) -> None:
        for consumer in self._running:
            consumer.kill()
        for server in (self._broker, self._namesrv):
            if server.is_running:
                server.kill()

    def join(self) -> None:
        number = len(self.consumers)
        consumer = Driver(
            self._java, self._folder / f"home{number}", "push", self._namesrv.namesrv,
            TOPIC, 0, f"group={GROUP}", f"instance=c{number}", "order=true",
            "heartbeat=1000",
        )  # fmt: skip
        self._running.append(consumer)
        self.consumers.append(consumer)

    def leave(self) -> None:
        consumer = self._take()
        consumer.wait_ready()
        consumer.finish()
        consumer.kill()

    def kill_consumer(self) -> None:
        self._take().kill()

    def _take(self) -> Driver:
        return self._running.pop(self._random.randrange(len(self._running)))

    def restart_broker(self) -> None:
        assert self._broker.stop() == 0
        self._broker = Server(*self._arguments)

    def kill_broker(self) -> None:
        self._broker.kill()
        self._broker = Server(*self._arguments)

    def step(self) -> None:
        """Do one of the things that can be done now."""
        possible = [self.restart_broker, self.kill_broker]
        if len(self._running) < MOST_CONSUMERS:
            possible += [self.join, self.join]
        if len(self._running) > 1:
            possible += [self.leave, self.kill_consumer]
        event = self._random.choice(possible)
        self.events[event.__name__] += 1
        event()
        time.sleep(self._random.uniform(*PAUSES_S))


class Verdict(NamedTuple):
    """What the consumers saw."""

    messages: int
    received: int
    faults: list[Fault]

    def __str__(self) -> str:
        return (
            f"{self.messages} messages in {QUEUES} queues, "
            f"{self.received - self.messages} came again, "
            f"{len(self.faults)} were lost or overtaken"
        )


def place_of(fields: dict[str, Any]) -> Place:
    return Place(TOPIC, int(fields["queueId"]), int(fields["queueOffset"]))


def received(consumers: list[Driver]) -> list[Read]:
    """What all got, in the order in which listeners were called."""
    rows = [row for consumer in consumers for row in consumer.of("received")]
    rows.sort(key=lambda row: row["nanos"])
    return [(row["number"], Place(TOPIC, row["queue"], row["offset"])) for row in rows]


def stored(address: str) -> int:
    """How many messages the queues hold; 0 while nobody answers."""
    total = 0
    for queue_id in range(QUEUES):
        fields = {"topic": TOPIC, "queueId": queue_id}
        answer = wire.call(address, RequestCode.GET_MAX_OFFSET, fields)
        total += int(answer.ext_fields["offset"])
    return total


@contextmanager
def chaos(folder: Path, java: Java, seed: int) -> Iterator[Chaos]:
    made = Chaos(folder, java, seed)
    try:
        yield made
    finally:
        made.close()


def play(folder: Path, java: Java, seconds: float, seed: int) -> Verdict:
    """Run, wait until all is consumed, and judge; prints what happened."""
    with ExitStack() as stack:
        running = stack.enter_context(chaos(folder, java, seed))
        wire.make_topic(running.address, TOPIC, QUEUES)
        running.join()
        sender = Sender(running.address)
        sender.start()
        stack.callback(sender.stop)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            running.step()
        sender.stop()
        count = stored(running.address)
        wait_until(
            lambda: len(set(received(running.consumers))) == count,
            f"{count} messages are consumed",
            SETTLE_S,
        )
        reads = received(running.consumers)
        faults = sender.history.faults(reads, is_in_order=True)
        verdict = Verdict(count, len(reads), faults)
    events = ", ".join(f"{name} {times}" for name, times in running.events.items())
    print(f"seed {seed}, {seconds:.0f} s: {verdict}; {events}", flush=True)
    return verdict


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    options = parser.parse_args()
    java = HastyJava()
    java.prepare()
    print(f"seed {options.seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="rmq-chaos-") as folder:
        verdict = play(Path(folder), java, options.seconds, options.seed)
    for fault in verdict.faults[:20]:
        print(fault)
    return bool(verdict.faults)


if __name__ == "__main__":
    raise SystemExit(main())
