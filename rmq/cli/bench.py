"""`rmq bench`: send messages over a few connections, and print rate and latency.

One thread and one selector: each connection has a window of unanswered requests and
sends one more for every answer. This sender is in Python and limits the rate itself;
`bench/load` in the source tree is a sender in C.
"""

import os
import selectors
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Final, NamedTuple

import click

from rmq.cli.admin.sends import writable_queues
from rmq.cli.options import FAILED
from rmq.client.admin import AdminClient, Queue, send_fields
from rmq.client.link import connect
from rmq.errors import RmqError
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.properties import encode_properties

RECEIVE_SIZE: Final = 1 << 18
TIMEOUT_S: Final = 10.0
PROGRESS_S: Final = 1.0


class Outcome(NamedTuple):
    """The result of a run."""

    latencies_ms: list[float]
    refused: Counter[str]
    seconds: float


class _Connection:
    """A window of sends to one queue."""

    def __init__(self, topic: str, queue: Queue, body: bytes) -> None:
        self._topic = topic
        self._queue = queue
        self._body = body
        self._prefix = os.urandom(10).hex().upper()
        self._decoder = FrameDecoder()
        self._sent = 0
        self._out = bytearray()
        self._started: dict[int, float] = {}
        self.socket = connect(queue.address, TIMEOUT_S)
        self.socket.setblocking(False)

    @property
    def waits_to_write(self) -> bool:
        return bool(self._out)

    @property
    def pending(self) -> int:
        return len(self._started)

    def send_one(self) -> None:
        """Add one request to the bytes to send."""
        self._sent += 1
        properties = {"UNIQ_KEY": f"{self._prefix}{self._sent:012X}", "WAIT": "true"}
        fields = send_fields(
            "rmq-bench", self._topic, self._queue.queue_id,
            encode_properties(properties), int(time.time() * 1_000),
        )  # fmt: skip
        request = Command(
            RequestCode.SEND_MESSAGE, fields, self._body, opaque=self._sent
        )
        self._started[self._sent] = time.perf_counter()
        self._out += encode(request)

    def write(self) -> None:
        """Send as many bytes as the socket takes."""
        try:
            del self._out[: self.socket.send(self._out)]
        except BlockingIOError:
            return
        except OSError as error:
            raise RmqError(f"{self._queue.address}: {error}") from error

    def read(self) -> Iterator[tuple[float, str]]:
        """Yield latency in ms and reason of refusal, or "", of every answer."""
        try:
            data = self.socket.recv(RECEIVE_SIZE)
        except BlockingIOError:
            return
        except OSError as error:
            raise RmqError(f"{self._queue.address}: {error}") from error
        if not data:
            raise RmqError(f"{self._queue.address} closed the connection")
        now = time.perf_counter()
        for answer in self._decoder.feed(data):
            if answer.is_response and answer.opaque in self._started:
                started = self._started.pop(answer.opaque)
                is_stored = answer.code == ResponseCode.SUCCESS
                why = "" if is_stored else f"code {answer.code}: {answer.remark}"
                yield (now - started) * 1_000, why


def _ready(
    selector: selectors.BaseSelector, connections: list[_Connection]
) -> list[_Connection]:
    """Send as many bytes as possible, then wait for answers or room."""
    for each in connections:
        wanted = selectors.EVENT_READ
        if each.waits_to_write:
            each.write()
        if each.waits_to_write:
            wanted |= selectors.EVENT_WRITE
        selector.modify(each.socket, wanted, each)
    return [key.data for key, _ in selector.select(0.1)]


def run(
    connections: list[_Connection], window: int, seconds: float, messages: int | None
) -> Outcome:
    """Keep the windows full until the time has passed or all messages are sent."""
    latencies_ms: list[float] = []
    refused: Counter[str] = Counter()
    left = messages if messages is not None else sys.maxsize
    began = shown = last = time.perf_counter()
    with selectors.DefaultSelector() as selector:
        for each in connections:
            selector.register(each.socket, selectors.EVENT_READ, each)
            for _ in range(min(window, left)):
                each.send_one()
                left -= 1
        while any(each.pending for each in connections):
            ready = _ready(selector, connections)
            now = time.perf_counter()
            for each in ready:
                for latency_ms, why in each.read():
                    last = now
                    latencies_ms.append(latency_ms)
                    if why:
                        refused[why] += 1
                    if left > 0 and now - began < seconds:
                        each.send_one()
                        left -= 1
            if now - last > TIMEOUT_S:
                raise RmqError(f"no answer for {TIMEOUT_S:.0f} s")
            if now - shown > PROGRESS_S and sys.stderr.isatty():
                shown = now
                click.echo(f"\r{len(latencies_ms):,} messages", nl=False, err=True)
    return Outcome(latencies_ms, refused, last - began)


@click.command()
@click.option(
    "-n", "--namesrvAddr", "namesrv", envvar="NAMESRV_ADDR", default="127.0.0.1:9876",
    show_default=True, metavar="HOST:PORT;…", help="Name servers to ask.",
)  # fmt: skip
@click.option("-t", "--topic", default="BenchmarkTest", show_default=True)
@click.option("-c", "--connections", type=click.IntRange(1, 1_000), default=4)
@click.option(
    "-w", "--window", type=click.IntRange(1, 10_000), default=64,
    help="Unanswered requests on each connection.",
)  # fmt: skip
@click.option("-s", "--size", type=click.IntRange(1, 4 << 20), default=128,
              help="Bytes of a body.")  # fmt: skip
@click.option("--seconds", type=click.FloatRange(0.1, 3_600), default=5.0)
@click.option(
    "--messages", type=click.IntRange(1), help="End after this number of messages."
)
def bench(
    namesrv: str,
    topic: str,
    connections: int,
    window: int,
    size: int,
    seconds: float,
    messages: int | None,
) -> None:
    """Send messages as fast as answers arrive; print rate and latency.

    Exit code 1 if a message was refused.
    """
    made: list[_Connection] = []
    try:
        with AdminClient([each for each in namesrv.split(";") if each]) as admin:
            queues = list(writable_queues(admin, topic))
        for number in range(connections):
            queue = queues[number % len(queues)]
            made.append(_Connection(topic, queue, b"b" * size))
        outcome = run(made, window, seconds, messages)
    except (RmqError, IndexError) as error:
        text = error if isinstance(error, RmqError) else f"{topic} cannot be written"
        click.echo(f"rmq: {text}", err=True)
        sys.exit(FAILED)
    finally:
        for each in made:
            each.socket.close()
    _show(outcome, connections, window, size)
    if outcome.refused:
        sys.exit(FAILED)


def _show(outcome: Outcome, connections: int, window: int, size: int) -> None:
    count = len(outcome.latencies_ms)
    stored = count - outcome.refused.total()
    click.echo(f"{connections} connections x {window}, {size} bytes")
    click.echo(f"{stored:,} messages in {outcome.seconds:.2f} s: "
               f"{stored / max(outcome.seconds, 1e-9):,.0f}/s")  # fmt: skip
    points = statistics.quantiles([*outcome.latencies_ms] * 2, n=1_000)
    texts = (f"{name} {points[at]:.2f} ms"
             for name, at in (("p50", 499), ("p99", 989), ("p99.9", 998)))  # fmt: skip
    click.echo(", ".join(texts))
    for why, times in outcome.refused.most_common(5):
        click.echo(f"refused {times:,} times: {why}", err=True)
