"""`rmq tail`: messages and events of running brokers, one per line.

It shows the messages of all topics in log order, clients that join (+) and leave (-),
problems (!) and administrative changes (*). Brokers of rmq answer request 20004; from
brokers of Java it pulls one named topic.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.cli import completion
from rmq.cli.consume.output import message_object
from rmq.cli.consume.stream import Choice, TopicReader, mute_client_log
from rmq.cli.end_signals import run_until_ended
from rmq.cli.failures import exit_with_error
from rmq.cli.terminal.text import (
    escape_controls,
    escape_json,
    fit_line,
    time_of_day,
    utc_time,
)
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import AdminClient, NoBroker, make_request
from rmq.core.errors import PeerError, RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import OwnRequestCode, ResponseCode
from rmq.protocol.command import Command

if TYPE_CHECKING:
    from rmq.client import Client

SAMPLE_SIZE: Final = 20
"""Maximum messages per second without --all."""

MAX_MESSAGES: Final = 200
WAIT_MS: Final = 2_000
"""Time that a broker may hold a request; less than the timeout of a tool."""

RETRY_S: Final = 1.0
MARKS: Final = {"came": "+", "left": "-", "problem": "!", "admin": "*"}
KINDS: Final = {
    "messages": (), "clients": ("came", "left"), "problems": ("problem",),
    "admin": ("admin",),
}  # fmt: skip

Row = dict[str, Any]


class TailOptions(NamedTuple):
    """Filters, and the form of the output."""

    topics: str
    key: str
    text: str
    only: str
    shows_all: bool
    shows_system: bool
    as_json: bool

    def fields(self) -> dict[str, object]:
        """Return the header fields of a request."""
        return {
            "topics": self.topics, "key": self.key, "text": self.text,
            "n": MAX_MESSAGES if self.shows_all else SAMPLE_SIZE, "waitMs": WAIT_MS,
            "skip": 0 if self.shows_all else 1, "system": int(self.shows_system),
        }  # fmt: skip


class FollowNotSupported(RmqError):
    """A broker of Java does not know request 20004."""


@click.command("tail")
@click.option(
    "-t",
    "--topics",
    default="",
    metavar="PATTERN",
    shell_complete=completion.topics,
    help="Only these topics; * and ? are wildcards.",
)
@click.option("-k", "--key", default="", help="Only messages with this text in a key.")
@click.option("--grep", "text", default="", help="Only bodies with this text.")
@click.option("--only", type=click.Choice(list(KINDS)), help="Only lines of this kind.")
@click.option(
    "-a",
    "--all",
    "shows_all",
    is_flag=True,
    help=f"Show all messages, not only {SAMPLE_SIZE} per second.",
)
@click.option("--system", "shows_system", is_flag=True, help="Include internal topics.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="Only this broker.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after N lines.")
@click.option("-J", "--json", "as_json", is_flag=True, help="Print JSON lines.")
@with_settings
def tail_command(  # noqa: PLR0913 - one parameter for each option
    settings: ToolSettings,
    topics: str,
    key: str,
    text: str,
    only: str | None,
    broker: str | None,
    count: int | None,
    *,
    shows_all: bool,
    shows_system: bool,
    as_json: bool,
) -> None:
    """Show new messages, clients, problems and changes of all brokers.

    It commits nothing and does not affect consumers. Ctrl-C stops it.

    \b
    rmq tail                        everything
    rmq tail -t 'order-*' -k 4711   messages of these topics with this key
    rmq tail --only problems        problems of brokers and groups
    """  # noqa: D301 - click wants the character itself
    wanted = TailOptions(
        topics, key, text, only or "", shows_all, shows_system, as_json
    )
    printer = _Printer(wanted, count)
    try:
        with settings.admin_client() as admin:
            try:
                _LogTail(settings, admin, wanted, printer, broker).run()
            except FollowNotSupported:
                _pull_topic(settings, admin, wanted, printer)
    except RmqError as error:
        exit_with_error(error)
    except (KeyboardInterrupt, _Enough):
        return


class _Enough(Exception):
    """The number of lines of --count is reached."""


class _Printer:
    """Prints lines and flushes each."""

    def __init__(self, wanted: TailOptions, count: int | None) -> None:
        self._wanted = wanted
        self._left = count
        self._is_terminal = sys.stdout.isatty()

    def print_message(self, row: Row) -> None:
        """Print a message."""
        if self._wanted.as_json:
            self._write(escape_json({"kind": "message"} | row))
        elif self._is_terminal:
            self._write(fit_line(message_line(row)))
        else:
            cells = [row["topic"], str(row["queue"]), row["offset"], row["key"],
                     row["tag"], str(row["size"]), row["text"]]  # fmt: skip
            self._write(
                "\t".join([utc_time(row["stored"]), *map(escape_controls, cells)])
            )

    def print_event(self, row: Row) -> None:
        """Print a client, problem or change."""
        if self._wanted.as_json:
            self._write(escape_json(row))
            return
        mark, place, say = (
            MARKS[row["kind"]],
            escape_controls(row["subject"]),
            escape_controls(row["message"]),
        )
        if self._is_terminal:
            self._write(
                fit_line(f"{time_of_day(row['at_ms'])}  {mark} {place:<16} {say}")
            )
        else:
            self._write("\t".join((utc_time(row["at_ms"]), row["kind"], place, say)))

    def print_hint(self, text: str) -> None:
        """Print a dim line to a terminal's stderr."""
        if self._is_terminal and not self._wanted.as_json:
            click.secho(fit_line(f"  {text}"), dim=True, err=True)

    def _write(self, line: str) -> None:
        click.echo(line)
        sys.stdout.flush()
        if self._left is not None:
            self._left -= 1
            if not self._left:
                raise _Enough


def message_line(row: Row) -> str:
    """Return a message as a line for a terminal, with escaped control characters."""
    size = f"{row['size']} B" if row["size"] < 10_000 else f"{row['size'] // 1_000} kB"
    topic, key, tag = (escape_controls(row[name]) for name in ("topic", "key", "tag"))
    return (
        f"{time_of_day(row['stored'])}  {topic:<16} {row['queue']:>4}  {key:<12} "
        f"{tag:<8} {size:>8}  {escape_controls(row['text'])}"
    )


class _LogTail:
    """Keeps a request open at each broker, until Ctrl-C."""

    def __init__(
        self, settings: ToolSettings, admin: AdminClient, wanted: TailOptions,
        printer: _Printer, broker: str | None,
    ) -> None:  # fmt: skip
        self._settings, self._wanted, self._printer = settings, wanted, printer
        self._admin = admin
        self._addresses = (
            [broker] if broker else [each.address for each in admin.masters()]
        )
        self._has_answer = False

    def run(self) -> None:
        """Poll all brokers; try brokers that do not answer again."""
        if not self._addresses:
            raise NoBroker(self._admin.name_servers)
        for address in self._addresses:
            self._admin.link(address)  # fails early, with clear errors
        mute_client_log()
        run_until_ended(self._run())

    async def _run(self) -> None:
        async with self._settings.async_client() as client:
            tasks = [
                asyncio.create_task(self._follow(client, each))
                for each in self._addresses
            ]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()

    async def _follow(self, client: "Client", address: str) -> None:
        timeout_ms = WAIT_MS + int(1_000 * self._settings.timeout_s)
        place: dict[str, object] = {"waitMs": 0}
        put: int | None = None
        while True:
            asked = make_request(
                OwnRequestCode.FOLLOW_LOG, self._wanted.fields() | place
            )
            try:
                answer = await client.request(address, asked, timeout_ms)
            except PeerError:
                if not self._has_answer:
                    raise
                self._printer.print_hint("no answer, retrying")
                await asyncio.sleep(RETRY_S)
                continue
            self._has_answer = True
            found = _decode_answer(address, answer)
            place = {"offset": found["offset"], "event": found["event"]}
            came = found["put"] - (found["put"] if put is None else put)
            put = found["put"]
            if self._print_answer(found, came):
                await asyncio.sleep(1.0)

    def _print_answer(self, found: Row, came: int) -> bool:
        """Print an answer; True if the broker has more than fits into a second."""
        only, rows = self._wanted.only, found["rows"]
        for event in found["events"]:
            if not only or event["kind"] in KINDS[only]:
                self._printer.print_event(event)
        if only and only != "messages":
            return False
        for row in rows:
            self._printer.print_message(row)
        if self._wanted.shows_all or len(rows) < SAMPLE_SIZE:
            return False
        self._printer.print_hint(
            f"{SAMPLE_SIZE} shown of {came:,} (-a shows all, -t filters)"
        )
        return True


def _decode_answer(address: str, answer: Command) -> Row:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise FollowNotSupported
    if answer.code != ResponseCode.SUCCESS:
        raise AnswerRefused(address, answer.code, answer.remark or "")
    found: Row = fastjson.load_json(answer.body)
    return found


# -- brokers of Java


def _pull_topic(
    settings: ToolSettings, admin: AdminClient, wanted: TailOptions, printer: _Printer
) -> None:
    """Show one topic by pulls, which every broker serves."""
    if not wanted.topics or any(each in wanted.topics for each in "*?["):
        raise RmqError(
            "Java's brokers do not serve their log: name one topic with rmq tail -t "
            "TOPIC"
        )

    def write(message: ReceivedMessage) -> None:
        row = pulled_row(message)
        if wanted.key in row["key"] and wanted.text in row["text"]:
            printer.print_message(row)

    choice = Choice(wanted.topics, "*", None, "last", None, None, stops_at_end=False)
    TopicReader(settings, admin, choice).run(write, None)


def pulled_row(message: ReceivedMessage) -> Row:
    """Return a pulled message as a row of request 20004."""
    found = message_object(message)
    return {
        "topic": message.topic, "queue": message.queue.queue_id,
        "offset": str(message.queue_offset), "id": message.msg_id,
        "stored": message.stored_ms, "born": message.born_ms,
        "key": found["keys"] or "", "tag": found["tags"] or "",
        "size": len(message.body), "again": message.reconsume_times,
        "text": message.body.decode("utf-8", "backslashreplace"),
    }  # fmt: skip
