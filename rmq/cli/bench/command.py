"""`rmq bench`: send or read messages over some connections; print rate and latency.

Each connection has a window of unanswered requests, and sends a new request after each
answer. Python limits the rate; `bench/load` in the source tree is a sender in C.
"""

import statistics
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from rmq.cli import completion
from rmq.cli.end_signals import run_until_ended
from rmq.cli.failures import Subject, exit_with_error
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import AdminClient
from rmq.core.errors import RmqError
from rmq.core.exit_codes import REFUSED
from rmq.protocol.codes import RequestCode

if TYPE_CHECKING:
    from rmq.cli.bench.load import PullJob, Run, SendJob


@click.command("bench")
@click.option(
    "-t",
    "--topic",
    default="BenchmarkTest",
    show_default=True,
    help="Topic.",
    shell_complete=completion.topics,
)
@click.option(
    "-c",
    "--connections",
    type=click.IntRange(1, 1_000),
    default=4,
    show_default=True,
    help="Number of connections.",
)
@click.option(
    "-w", "--window", type=click.IntRange(1, 10_000), default=64, show_default=True,
    help="Unanswered sends per connection.",
)  # fmt: skip
@click.option(
    "-s", "--size", type=click.IntRange(1, 4 << 20), default=128, show_default=True,
    help="Size of a body in bytes.",
)  # fmt: skip
@click.option(
    "--seconds",
    type=click.FloatRange(0.1, 3_600),
    default=5.0,
    show_default=True,
    help="Maximum duration.",
)
@click.option(
    "--messages", type=click.IntRange(1), help="Stop after this number of messages."
)
@click.option(
    "--consume",
    is_flag=True,
    help="Read stored messages, send and commit nothing.",
)
@with_settings
def bench_command(
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
    """Measure rate and latency of sends or reads.

    Sends a message for each answer. Exit code 5 if a broker refused a request. The
    messages stay until they expire, or until
    rmq topic clear BenchmarkTest.

    \b
    rmq bench                               4 connections, 128 bytes, 5 seconds
    rmq bench --consume                     read these messages
    """  # noqa: D301 - click wants the character itself
    # imported on use: usage errors need no event loop
    from rmq.cli.bench.load import measure

    try:
        with settings.admin_client() as admin:
            jobs: list[SendJob | PullJob]
            if consume:
                jobs = [*_plan_pulls(admin, topic, connections)]
            else:
                jobs = [*_plan_sends(admin, topic, connections, b"b" * size)]
        run = run_until_ended(measure(settings, jobs, window, seconds, messages))
    except RmqError as error:
        exit_with_error(
            error, subject=Subject(topic, action="Sub" if consume else "Pub")
        )
    _print_result(run, connections, None if consume else (window, size))
    if run.refused:
        sys.exit(REFUSED)


def _plan_sends(
    admin: AdminClient, topic: str, connections: int, body: bytes
) -> Iterator["SendJob"]:
    """Yield a job for each connection, with one queue."""
    from rmq.cli.bench.load import SendJob

    queues = admin.writable_queues(topic)
    if not queues:
        raise RmqError(f"{topic} has no usable queue")
    for number in range(connections):
        yield SendJob(number, topic, queues[number % len(queues)], body)


def _plan_pulls(
    admin: AdminClient, topic: str, connections: int
) -> Iterator["PullJob"]:
    """Yield a job for each queue, spread over the connections."""
    from rmq.cli.bench.load import PullJob

    queues = list(admin.queues(topic))
    if not queues:
        raise RmqError(f"{topic} has no usable queue")
    for number, queue in enumerate(queues):
        begin = admin.offset(RequestCode.GET_MIN_OFFSET, topic, queue)
        stop = admin.offset(RequestCode.GET_MAX_OFFSET, topic, queue)
        connection = number % connections, queue.address
        yield PullJob(connection, topic, queue, begin, stop)


def _print_result(run: "Run", connections: int, sends: tuple[int, int] | None) -> None:
    from rmq.cli.bench.load import RECORD_COUNT

    if sends is None:
        click.echo(f"{connections} connections, {RECORD_COUNT} messages per pull")
    else:
        click.echo(f"{connections} connections x {sends[0]}, {sends[1]} bytes")
    click.echo(f"{run.done:,} messages in {run.elapsed_s:.2f} s: "
               f"{run.done / max(run.elapsed_s, 1e-9):,.0f}/s")  # fmt: skip
    if run.latencies_ms:
        points = statistics.quantiles(run.latencies_ms * 2, n=1_000)
        places = ("p50", 499), ("p99", 989), ("p99.9", 998)
        texts = (f"{name} {points[at]:.2f} ms" for name, at in places)
        click.echo(", ".join(texts))
    for why, times in run.refused.most_common(5):
        click.echo(f"refused {times:,} times: {why}", err=True)
