"""`rmq send`: send one message, or one for each line."""

import json
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import click

from rmq.cli import completion
from rmq.cli.failures import FAILED, INTERRUPTED, Failure, Subject, end, explain, report
from rmq.cli.progress import Progress
from rmq.cli.text import clock, duration_ms, harmless, iso
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import (
    AdminClient,
    Queue,
    message_ids,
    request,
    send_fields,
)
from rmq.client.window import Arrival, Window
from rmq.errors import RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import properties
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.topics import validate_topic

GROUP: Final = "rmq-send"
WINDOW: Final = 256
"""Sends without an answer: enough to hide the way to the broker and back."""

INTERRUPTED_WAIT_S: Final = 3.0
"""After Ctrl-C, for answers: those of a new topic take a second or two."""

READ_SIZE: Final = 1 << 16
MAX_INPUT: Final = 128 << 20
"""The highest maxMessageSize of a broker."""

MINUTE_MS: Final = 60_000
LEVELS_MS: Final = (
    1_000, 5_000, 10_000, 30_000, *(MINUTE_MS * minutes for minutes in range(1, 11)),
    20 * MINUTE_MS, 30 * MINUTE_MS, 60 * MINUTE_MS, 120 * MINUTE_MS,
)  # fmt: skip
"""The default of messageDelayLevel."""

TIMED: Final = re.compile("timed delivery")
STORED: Final = (
    ResponseCode.SUCCESS, ResponseCode.FLUSH_DISK_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE, ResponseCode.FLUSH_SLAVE_TIMEOUT,
)  # fmt: skip
"""Answers after which the message is in the log."""


class Sent(NamedTuple):
    """What was sent, to be shown when its answer comes."""

    queue: Queue
    message_id: str


class Sender:
    """The queues of a topic in turn, and what all messages have in common."""

    def __init__(
        self,
        admin: AdminClient,
        topic: str,
        queue_id: int | None,
        common: dict[str, str],
    ) -> None:
        self.timeout_s = admin.timeout_s
        self._admin = admin
        self._topic = topic
        self._common = common
        self._queues = [
            each
            for each in admin.writable_queues(topic)
            if queue_id in (None, each.queue_id)
        ]
        if not self._queues:
            which = "" if queue_id is None else f" {queue_id}"
            raise RmqError(f"{topic} has no queue{which} that can be written")
        self._next = random.randrange(len(self._queues))
        self._ids = message_ids(admin.link(self._queues[0].address))

    def start(self, window: Window, body: bytes) -> None:
        """Queue one message."""
        queue = self._queues[self._next % len(self._queues)]
        self._next += 1
        message_id = self._ids.next()
        pairs = {properties.UNIQ_KEY: message_id, "WAIT": "true", **self._common}
        fields = send_fields(
            GROUP, self._topic, queue.queue_id, properties.encode_properties(pairs),
            int(time.time() * 1_000),
        )  # fmt: skip
        wanted = request(RequestCode.SEND_MESSAGE, fields, body)
        window.send(self._admin.link(queue.address), wanted, Sent(queue, message_id))


@click.command()
@click.argument("topic", shell_complete=completion.topics)
@click.argument("body", required=False)
@click.option("-k", "--key", "keys", multiple=True, help="May be repeated.")
@click.option("-t", "--tag", default="")
@click.option(
    "-p", "--property", "pairs", multiple=True, metavar="NAME=VALUE",
    help="May be repeated.",
)  # fmt: skip
@click.option("--delay", metavar="10s", help="Deliver it so much later: 10s, 5m, 1h.")
@click.option(
    "--file", "path", metavar="FILE", help="Take the body from a file; - is stdin."
)
@click.option(
    "--lines", is_flag=True, help="Send one message for each line that is not empty."
)
@click.option("--rate", type=click.FloatRange(0.001), help="At most so many a second.")
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0), help="Only this queue."
)
@click.option(
    "-J", "--json", "as_json", is_flag=True, help="One JSON object a message."
)
@with_settings
def send(  # noqa: PLR0913 - one parameter for each option
    settings: ToolSettings,
    topic: str,
    body: str | None,
    keys: tuple[str, ...],
    tag: str,
    pairs: tuple[str, ...],
    delay: str | None,
    path: str | None,
    rate: float | None,
    queue_id: int | None,
    *,
    lines: bool,
    as_json: bool,
) -> None:
    """Send a message: BODY, a file, or what stdin holds.

    \b
    rmq send Hello "hello, rmq"
    rmq send Hello -k o-4711 -t paid -p color=red --delay 10s --file order.json
    seq 100000 | rmq send Hello --lines --rate 20000

    Exit code 1 if a message was refused.
    """  # noqa: D301 - click wants the character itself
    if body is not None and (path is not None or lines):
        raise click.UsageError("give BODY, or --file or --lines, not both")
    common = _properties(keys, tag, pairs)
    comes_ms = 0
    if delay is not None:
        wait_ms = duration_ms(delay)
        comes_ms = int(time.time() * 1_000) + wait_ms
        common |= _delay(wait_ms)
    try:
        validate_topic(topic)
    except RmqError as error:
        end(_illegal(topic, error))
    with settings.admin() as admin:
        try:
            bodies, total = _bodies(body, path, lines=lines)
            sender = Sender(admin, topic, queue_id, common)
            printer = _Printer(topic, comes_ms, as_json=as_json, is_many=lines)
            _send_all(sender, bodies, total, rate, printer)
        except RmqError as error:
            end(error, admin, Subject(topic, action="Pub"))
    printer.end()


class _Printer:
    """Shows each message on stdout, and refusals on stderr at the end."""

    def __init__(
        self, topic: str, comes_ms: int, *, as_json: bool, is_many: bool
    ) -> None:
        self._topic = topic
        self._comes_ms = comes_ms
        self._as_json = as_json
        self._is_tty = sys.stdout.isatty()
        self._is_quiet = self._is_tty and is_many and not as_json
        self.done = 0
        self.unanswered = 0
        self.is_interrupted = False
        self.refused: Counter[AnswerRefused] = Counter()
        self._reasons: dict[str, AnswerRefused] = {}

    @property
    def failed(self) -> int:
        """How many messages were refused."""
        return self.refused.total()

    def show(self, arrival: Arrival) -> None:
        """Show the answer to one message."""
        _, answer, sent, took_s = arrival
        if answer.code not in STORED:
            error = AnswerRefused(sent.queue.address, answer.code, answer.remark or "")
            self.refused[self._reasons.setdefault(str(error), error)] += 1
            return
        self.done += 1
        if not self._is_quiet:
            click.echo(self._line(sent, answer.ext_fields, 1_000 * took_s))

    def _line(self, sent: Sent, fields: dict[str, str], took_ms: float) -> str:
        queue, offset = int(fields["queueId"]), int(fields["queueOffset"])
        now_ms = int(time.time() * 1_000)
        if self._as_json:
            return json.dumps(
                {
                    "topic": self._topic, "brokerName": sent.queue.broker,
                    "queueId": queue, "queueOffset": offset, "msgId": sent.message_id,
                    "time": iso(now_ms),
                }
            )  # fmt: skip
        if not self._is_tty:
            parts = self._topic, str(queue), str(offset), sent.message_id, iso(now_ms)
            return "\t".join(parts)
        comes = f"  comes at {clock(self._comes_ms)[:8]}" if self._comes_ms else ""
        return (
            f"sent  {self._topic}  queue {queue}  offset {offset}  {took_ms:.1f} ms  "
            f"{sent.message_id}{comes}"
        )

    def end(self) -> None:
        """Report refusals, and end with the exit code if not all is well."""
        for error, count in self.refused.most_common(3):
            failure = explain(error, subject=Subject(self._topic, action="Pub"))
            times = f" ({count:,} messages)" if count > 1 else ""
            report(_with_delay(failure, error)._replace(what=failure.what + times))
        if self.is_interrupted:
            click.echo(
                f"sent {self.done:,}, refused {self.failed:,}, without an answer "
                f"{self.unanswered:,}",
                err=True,
            )
            sys.exit(INTERRUPTED)
        if self.refused:
            sys.exit(FAILED)


def _with_delay(failure: Failure, error: AnswerRefused) -> Failure:
    """Add what can be done about a delay that this broker does not have."""
    if not TIMED.search(error.remark):
        return failure
    return failure._replace(
        remedy="--delay with 1s 5s 10s 30s, 1m to 10m, 20m 30m 1h 2h"
    )


def _send_all(
    sender: Sender,
    bodies: Iterable[bytes | None],
    total: int | None,
    rate: float | None,
    printer: _Printer,
) -> None:
    """Keep the window full, not faster than `rate`; Ctrl-C ends after the answers."""
    with Window() as window, Progress("sent", total) as progress:

        def wait(wait_s: float, limit: int) -> None:
            while window.pending > limit:
                arrivals = window.arrivals(wait_s)
                for each in arrivals:
                    if each.note is not None:
                        printer.show(each)
                progress.show(printer.done, f"{printer.failed:,} failed")
                if not arrivals and time.monotonic() - last > sender.timeout_s:
                    raise RmqError(f"{window.pending} messages got no answer in time")

        began = last = time.monotonic()
        try:
            number = 0
            for body in bodies:
                if body is None:
                    wait(0.5, 0)
                    continue
                if rate is not None:
                    _pace(window, printer, began + number / rate)
                number += 1
                sender.start(window, body)
                last = time.monotonic()
                wait(0.5, WINDOW - 1)
            wait(0.5, 0)
        except KeyboardInterrupt:
            printer.is_interrupted = True
            _show_late(window, printer)
            printer.unanswered = window.pending


def _show_late(window: Window, printer: _Printer) -> None:
    """Show the answers that come although nobody waits for all of them any more."""
    end = time.monotonic() + INTERRUPTED_WAIT_S
    while window.pending and (left_s := end - time.monotonic()) > 0:
        for each in window.arrivals(left_s):
            if each.note is not None:
                printer.show(each)


def _pace(window: Window, printer: _Printer, due: float) -> None:
    """Show what arrives until the next message is due."""
    while (left_s := due - time.monotonic()) > 0:
        if window.pending:
            for each in window.arrivals(left_s):
                printer.show(each)
        else:
            time.sleep(left_s)


def _properties(
    keys: tuple[str, ...], tag: str, pairs: tuple[str, ...]
) -> dict[str, str]:
    common = {properties.KEYS: " ".join(keys), properties.TAGS: tag}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair}: write NAME=VALUE", param_hint="-p")
        common[name] = value
    return {name: value for name, value in common.items() if value}


def _delay(wait_ms: int) -> dict[str, str]:
    """Return the property of a delay; all brokers know levels."""
    if wait_ms in LEVELS_MS:
        return {properties.DELAY: str(LEVELS_MS.index(wait_ms) + 1)}
    return {properties.TIMER_DELAY_MS: str(wait_ms)}


def _bodies(
    body: str | None, path: str | None, *, lines: bool
) -> tuple[Iterable[bytes | None], int | None]:
    """Return the bodies, and how many there are if that is known."""
    if body is not None:
        return [body.encode("utf-8", "surrogateescape")], 1
    if path in (None, "-"):
        source: BinaryIO = sys.stdin.buffer
        if sys.stdin.isatty():
            click.echo("reading stdin; Ctrl-D ends it", err=True)
        return (_lines(source), None) if lines else ([_whole(source)], 1)
    try:
        if lines:
            content = Path(str(path)).read_bytes()
            split = [line for line in content.splitlines() if line]
            return split, len(split)
        with open(str(path), "rb") as file:
            return [_whole(file)], 1
    except OSError as error:
        raise RmqError(f"cannot read {path}: {error.strerror}") from error


def _whole(source: BinaryIO) -> bytes:
    data = source.read(MAX_INPUT + 1)
    if len(data) > MAX_INPUT:
        raise RmqError(f"a body has at most {MAX_INPUT:,} bytes, on any broker")
    return data


def _lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield the lines that are not empty, and None before each wait for more."""
    rest = b""
    while data := source.read1(READ_SIZE):  # type: ignore[attr-defined] # buffered
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_INPUT:
            raise RmqError(f"a body has at most {MAX_INPUT:,} bytes, on any broker")
        yield from filter(None, (line.rstrip(b"\r") for line in lines))
        yield None
    if rest:
        yield rest


def _illegal(topic: str, error: RmqError) -> "RmqError":
    return RmqError(f"a topic cannot be called {harmless(topic)}: {error}")
