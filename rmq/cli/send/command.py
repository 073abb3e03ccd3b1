"""`rmq send`: send one message, or one message a line."""

import json
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final

import click

from rmq.cli import completion
from rmq.cli.failures import (
    Failure,
    Subject,
    exit_with_error,
    explain,
    print_failure,
)
from rmq.cli.send import MAX_BODY_BYTES
from rmq.cli.standard_streams import OutputFailed
from rmq.cli.terminal.progress import Progress
from rmq.cli.terminal.text import (
    parse_duration_ms,
    time_of_day,
    utc_time,
)
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.core.errors import RmqError
from rmq.core.exit_codes import INTERRUPTED, REFUSED
from rmq.outgoing.refused import AnswerRefused

if TYPE_CHECKING:
    from rmq._fastpath.client.messages import SendResult

READ_SIZE: Final = 1 << 16
TIMED: Final = re.compile("timed delivery")


def message_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add topic, body, keys, tag and properties, also for `rmq request`."""
    for option in (
        click.option(
            "-p", "--property", "pairs", multiple=True, metavar="NAME=VALUE",
            help="User property. Repeatable.",
        ),
        click.option("-t", "--tag", default="", help="Tag of the message."),
        click.option(
            "-k", "--key", "keys", multiple=True, help="Key of the message. Repeatable."
        ),
        click.argument("body", required=False),
        click.argument("topic", shell_complete=completion.topics),
    ):  # fmt: skip
        command = option(command)
    return command


file_option = click.option(
    "--file", "path", metavar="FILE", help="Read the body from a file; - reads stdin."
)


@click.command("send")
@message_options
@click.option("--delay", metavar="10s", help="Deliver after this time: 10s, 5m, 1h.")
@file_option
@click.option("--lines", is_flag=True, help="Send one message for each non-empty line.")
@click.option(
    "--rate", type=click.FloatRange(0.001), help="Maximum rate, in messages per second."
)
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0), help="Send to this queue."
)
@click.option(
    "-J", "--json", "as_json", is_flag=True, help="Print one JSON object per message."
)
@with_settings
def send_command(  # noqa: PLR0913 - one parameter for each option
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
    """Send a message with BODY, a file or stdin as its body.

    \b
    rmq send Hello "hello, rmq"
    rmq send Hello -k o-4711 -t paid -p color=red --delay 10s --file order.json
    seq 100000 | rmq send Hello --lines --rate 20000

    Exit code 5 if a broker refused a message.
    """  # noqa: D301 - click wants the character itself
    if body is not None and (path is not None or lines):
        raise click.UsageError("give BODY, or --file or --lines, not both")
    properties = properties_of(pairs)
    wait_ms = None if delay is None else parse_duration_ms(delay)
    # imported on use: usage errors need no event loop
    from rmq.cli.consume.stream import check_topic_name
    from rmq.cli.send.sender import Sender, SendOptions

    try:
        check_topic_name(topic)
    except RmqError as error:
        exit_with_error(error)

    wanted = SendOptions(
        topic, queue_id, tag, split_keys(keys), properties, wait_ms, rate
    )
    try:
        wanted.message(b"x")
    except ValueError as error:
        raise click.UsageError(str(error)) from error
    with settings.admin_client() as admin:
        try:
            bodies, total, source = _open_bodies(body, path, lines=lines)
            with Progress("sent", total) as progress:
                delivery_ms = int(time.time() * 1_000) + wait_ms if wait_ms else 0
                printer = _Printer(
                    topic, delivery_ms, progress, as_json=as_json, is_many=lines
                )
                Sender(settings, admin, wanted, printer).run(bodies, source)
        except RmqError as error:
            exit_with_error(error, admin, Subject(topic, action="Pub"))
        except OutputFailed:
            printer.print_counts()
            raise
    printer.end()


class _Printer:
    """Prints sent messages to stdout, and refusals to stderr at the end."""

    def __init__(
        self,
        topic: str,
        delivery_ms: int,
        progress: Progress,
        *,
        as_json: bool,
        is_many: bool,
    ) -> None:
        self._topic = topic
        self._progress = progress
        self._delivery_ms = delivery_ms
        self._as_json = as_json
        self._is_tty = sys.stdout.isatty()
        self._is_quiet = self._is_tty and is_many and not as_json
        self.done = 0
        self.unanswered = 0
        self.is_interrupted = False
        self.refused: Counter[AnswerRefused] = Counter()
        self._reasons: dict[str, AnswerRefused] = {}

    @property
    def failed_count(self) -> int:
        """The number of refused messages."""
        return self.refused.total()

    def refuse(self, error: AnswerRefused) -> None:
        """Count a refused message."""
        self.refused[self._reasons.setdefault(str(error), error)] += 1

    def show_progress(self) -> None:
        """Update the progress line."""
        self._progress.update(self.done, f"{self.failed_count:,} failed")

    def print_result(self, result: "SendResult", took_s: float) -> None:
        """Print a stored message."""
        self.done += 1
        if not self._is_quiet:
            click.echo(self._result_line(result, 1_000 * took_s))

    def _result_line(self, result: "SendResult", took_ms: float) -> str:
        queue, offset = result.queue.queue_id, result.queue_offset
        now_ms = int(time.time() * 1_000)
        if self._as_json:
            return json.dumps(
                {
                    "topic": self._topic, "brokerName": result.queue.broker,
                    "queueId": queue, "queueOffset": offset, "msgId": result.msg_id,
                    "time": utc_time(now_ms),
                }
            )  # fmt: skip
        if not self._is_tty:
            parts = (
                self._topic,
                str(queue),
                str(offset),
                result.msg_id,
                utc_time(now_ms),
            )
            return "\t".join(parts)
        delivery = (
            f"  delivery at {time_of_day(self._delivery_ms)[:8]}"
            if self._delivery_ms
            else ""
        )
        return (
            f"sent  {self._topic}  queue {queue}  offset {offset}  {took_ms:.1f} ms  "
            f"{result.msg_id}{delivery}"
        )

    def print_counts(self) -> None:
        """Print the number of sent messages to stderr."""
        click.echo(
            f"sent {self.done:,}, refused {self.failed_count:,}, without an answer "
            f"{self.unanswered:,}",
            err=True,
        )

    def end(self) -> None:
        """Print refusals; exit with a code unless all messages were sent."""
        for error, count in self.refused.most_common(3):
            failure = explain(error, subject=Subject(self._topic, action="Pub"))
            times = f" ({count:,} messages)" if count > 1 else ""
            print_failure(
                _with_delay(failure, error)._replace(what=failure.what + times)
            )
        if self.is_interrupted:
            self.print_counts()
            sys.exit(INTERRUPTED)
        if self.refused:
            sys.exit(REFUSED)


def _with_delay(failure: Failure, error: AnswerRefused) -> Failure:
    """Add the remedy for a delay that the broker does not serve."""
    if not TIMED.search(error.remark):
        return failure
    return failure._replace(
        remedy="use --delay with 1s 5s 10s 30s, 1m to 10m, 20m 30m 1h 2h"
    )


def properties_of(pairs: tuple[str, ...]) -> dict[str, str]:
    """Parse `NAME=VALUE` options; BadParameter for other texts."""
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not (name and equals):
            raise click.BadParameter(f"{pair}: write NAME=VALUE", param_hint="-p")
        if not value:
            text = f"{pair}: brokers drop a property without a value"
            raise click.BadParameter(text, param_hint="-p")
        found[name] = value
    return found


def split_keys(keys: tuple[str, ...]) -> tuple[str, ...]:
    """Split keys at blanks, as brokers do."""
    return tuple(word for key in keys for word in key.split())


def _open_bodies(
    body: str | None, path: str | None, *, lines: bool
) -> tuple[Iterable[bytes | None], int | None, BinaryIO | None]:
    """Return the bodies, their number if it is known, and the input that is read."""
    if not lines:
        return [body_of(body, path)], 1, None
    if path in (None, "-"):
        source = _open_stdin()
        return _read_lines(source), None, source
    try:
        split = _bodies_of(Path(str(path)).read_bytes().split(b"\n"))
    except OSError as error:
        raise RmqError(f"cannot read {path}: {error.strerror}") from error
    return split, len(split), None


def body_of(body: str | None, path: str | None) -> bytes:
    """Return the body of an argument, of a file, or of stdin."""
    if body is not None:
        return body.encode("utf-8", "surrogateescape")
    if path in (None, "-"):
        return _read_body(_open_stdin())
    try:
        with open(str(path), "rb") as file:
            return _read_body(file)
    except OSError as error:
        raise RmqError(f"cannot read {path}: {error.strerror}") from error


def _open_stdin() -> BinaryIO:
    if sys.stdin.isatty():
        click.echo("reading stdin; Ctrl-D ends it", err=True)
    return sys.stdin.buffer


def _read_body(source: BinaryIO) -> bytes:
    data = source.read(MAX_BODY_BYTES + 1)
    if len(data) > MAX_BODY_BYTES:
        raise RmqError(f"a body can have at most {MAX_BODY_BYTES:,} bytes")
    return data


def _read_lines(source: BinaryIO) -> Iterator[bytes | None]:
    """Yield the non-empty lines, and None before each wait for input."""
    rest = b""
    yield None
    while data := source.read1(READ_SIZE):  # type: ignore[attr-defined] # buffered
        *lines, rest = (rest + data).split(b"\n")
        if len(rest) > MAX_BODY_BYTES:
            raise RmqError(f"a body can have at most {MAX_BODY_BYTES:,} bytes")
        yield from _bodies_of(lines)
        yield None
    yield from _bodies_of([rest])


def _bodies_of(lines: list[bytes]) -> list[bytes]:
    """Return the bodies of lines: without carriage returns and without empty lines."""
    return [body for line in lines if (body := line.rstrip(b"\r"))]
