"""`rmq bench`: send or read messages over a few connections; print rate and latency.

Each connection has a window of unanswered requests and sends one more for every answer.
This program is in Python and limits the rate itself; `bench/load` in the source tree is
a sender in C.
"""

import os
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import click

from rmq.cli.failures import FAILED, Subject, end
from rmq.cli.progress import Progress
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import AdminClient, Queue, pull_fields, request, send_fields
from rmq.client.window import Window
from rmq.errors import RmqError
from rmq.outgoing.link import Link
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.properties import encode_properties

GROUP: Final = "rmq-bench"
TIMEOUT_S: Final = 10.0
RECORD_COUNT: Final = 32
"""Messages that one pull asks for, as clients do."""


class Outcome(NamedTuple):
    """The result of a run."""

    latencies_ms: list[float]
    messages: int
    refused: Counter[str]
    seconds: float


class Worker(NamedTuple):
    """A connection with what it does: `make` returns the next request, or None.

    `count` returns how many messages an answer stands for.
    """

    link: Link
    make: Callable[[], Command | None]
    count: Callable[[Command], int]


def run(
    workers: Sequence[Worker], window: int, seconds: float, messages: int | None
) -> Outcome:
    """Keep the windows full until the time has passed or all messages are done."""
    latencies_ms: list[float] = []
    refused: Counter[str] = Counter()
    limit = messages if messages is not None else sys.maxsize
    done = asked = 0
    began = last = time.perf_counter()
    with Window() as open_requests, Progress("messages", messages) as progress:

        def ask(worker: Worker) -> None:
            nonlocal asked
            wanted = worker.make() if asked < limit else None
            if wanted is not None:
                asked += 1
                open_requests.send(worker.link, wanted, worker)

        for _ in range(window):
            for each in workers:
                ask(each)
        while open_requests.pending:
            arrivals = open_requests.arrivals(0.1)
            now = time.perf_counter()
            for _, answer, worker, took_s in arrivals:
                if worker is None:
                    continue
                last = now
                latencies_ms.append(1_000 * took_s)
                count = worker.count(answer)
                done += max(count, 0)
                if count < 0:
                    refused[f"code {answer.code}: {answer.remark}"] += 1
                if now - began < seconds and done < limit:
                    ask(worker)
            if now - last > TIMEOUT_S:
                raise RmqError(f"no answer for {TIMEOUT_S:.0f} s")
            progress.show(done)
    return Outcome(latencies_ms, done, refused, last - began)


def _sends(link: Link, topic: str, queue: Queue, body: bytes) -> Worker:
    """Return a worker that sends one body to one queue."""
    prefix = os.urandom(10).hex().upper()
    sent = 0

    def make() -> Command:
        nonlocal sent
        sent += 1
        properties = {"UNIQ_KEY": f"{prefix}{sent:012X}", "WAIT": "true"}
        fields = send_fields(
            GROUP, topic, queue.queue_id, encode_properties(properties),
            int(time.time() * 1_000),
        )  # fmt: skip
        return request(RequestCode.SEND_MESSAGE, fields, body)

    def count(answer: Command) -> int:
        return 1 if answer.code == ResponseCode.SUCCESS else -1

    return Worker(link, make, count)


def _pulls(link: Link, topic: str, queue: Queue, start: int, end: int) -> Worker:
    """Return a worker that reads one queue, one pull after another as clients do."""
    offset, is_open = start, False

    def make() -> Command | None:
        nonlocal is_open
        if is_open or offset >= end:
            return None
        is_open = True
        fields = pull_fields(topic, queue, offset, count=RECORD_COUNT, group=GROUP)
        return request(RequestCode.PULL_MESSAGE, fields)

    def count(answer: Command) -> int:
        nonlocal offset, is_open
        is_open = False
        before = offset
        if answer.code != ResponseCode.SUCCESS:
            offset = end
            return -1
        offset = max(offset, int(answer.ext_fields["nextBeginOffset"]))
        return offset - before

    return Worker(link, make, count)


@click.command()
@click.option("-t", "--topic", default="BenchmarkTest", show_default=True)
@click.option(
    "-c", "--connections", type=click.IntRange(1, 1_000), default=4, show_default=True
)
@click.option(
    "-w", "--window", type=click.IntRange(1, 10_000), default=64, show_default=True,
    help="Unanswered sends on each connection.",
)  # fmt: skip
@click.option(
    "-s", "--size", type=click.IntRange(1, 4 << 20), default=128, show_default=True,
    help="Bytes of a body.",
)  # fmt: skip
@click.option(
    "--seconds", type=click.FloatRange(0.1, 3_600), default=5.0, show_default=True
)
@click.option(
    "--messages", type=click.IntRange(1), help="End after this number of messages."
)
@click.option(
    "--consume", is_flag=True, help="Read what the topic holds, and commit nothing."
)
@with_settings
def bench(
    settings: ToolSettings,
    topic: str,
    connections: int,
    window: int,
    size: int,
    seconds: float,
    messages: int | None,
    *,
    consume: bool,
) -> None:
    """Send messages as fast as answers arrive, or read them; print rate and latency.

    Exit code 1 if a request was refused. The messages stay in the topic until they
    expire: rmq admin deleteTopic -t BenchmarkTest -c CLUSTER removes them.

    \b
    rmq bench                               4 connections, 128 bytes, 5 seconds
    rmq bench --consume                     read these messages
    """  # noqa: D301 - click wants the character itself
    links: list[Link] = []
    try:
        with settings.admin() as admin:
            workers = _workers(
                admin, topic, links, connections, b"b" * size, consume=consume
            )
        outcome = run(workers, window, seconds, messages)
    except RmqError as error:
        end(error, subject=Subject(topic, action="Sub" if consume else "Pub"))
    finally:
        for link in links:
            link.close()
    _show(outcome, connections, None if consume else (window, size))
    if outcome.refused:
        sys.exit(FAILED)


def _workers(
    admin: AdminClient,
    topic: str,
    links: list[Link],
    connections: int,
    body: bytes,
    *,
    consume: bool,
) -> list[Worker]:
    """Open the connections, and give each of them queues."""
    queues = list(admin.queues(topic) if consume else admin.writable_queues(topic))
    if not queues:
        raise RmqError(f"{topic} has no queue that this can use")

    def link_to(queue: Queue) -> Link:
        links.append(Link(queue.address, TIMEOUT_S, admin.identity))
        return links[-1]

    if not consume:
        chosen = (queues[number % len(queues)] for number in range(connections))
        return [_sends(link_to(each), topic, each, body) for each in chosen]
    shared: dict[tuple[int, str], Link] = {}
    workers = []
    for number, queue in enumerate(queues):
        place = number % connections, queue.address
        if place not in shared:
            shared[place] = link_to(queue)
        start = admin.offset(RequestCode.GET_MIN_OFFSET, topic, queue)
        stop = admin.offset(RequestCode.GET_MAX_OFFSET, topic, queue)
        workers.append(_pulls(shared[place], topic, queue, start, stop))
    return workers


def _show(outcome: Outcome, connections: int, sends: tuple[int, int] | None) -> None:
    if sends is None:
        click.echo(f"{connections} connections, {RECORD_COUNT} messages a pull")
    else:
        click.echo(f"{connections} connections x {sends[0]}, {sends[1]} bytes")
    click.echo(f"{outcome.messages:,} messages in {outcome.seconds:.2f} s: "
               f"{outcome.messages / max(outcome.seconds, 1e-9):,.0f}/s")  # fmt: skip
    if outcome.latencies_ms:
        points = statistics.quantiles(outcome.latencies_ms * 2, n=1_000)
        places = ("p50", 499), ("p99", 989), ("p99.9", 998)
        texts = (f"{name} {points[at]:.2f} ms" for name, at in places)
        click.echo(", ".join(texts))
    for why, times in outcome.refused.most_common(5):
        click.echo(f"refused {times:,} times: {why}", err=True)
