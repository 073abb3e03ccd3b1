"""`rmq tail`: what happens on running brokers, line by line.

Messages of all topics in the order of each broker's log, and beside them clients that
come (+) and leave (-), problems (!) and changes by administration (*).  Brokers of rmq
are asked with request 20004; of Java's brokers a named topic is pulled.
"""

import asyncio
import sys
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from rmq._fastpath.client.messages import ReceivedMessage
from rmq.cli import completion
from rmq.cli.consume.output import message_object
from rmq.cli.consume.stream import Choice, TopicReader, be_quiet
from rmq.cli.failures import exit_with_error
from rmq.cli.terminal.text import (
    escape_controls,
    escape_json,
    fit_line,
    time_of_day,
    utc_time,
)
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.admin import AdminClient, request
from rmq.core.errors import PeerError, RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol import fastjson
from rmq.protocol.codes import OwnRequestCode, ResponseCode
from rmq.protocol.command import Command

if TYPE_CHECKING:
    from rmq.client import Client

SAMPLE_SIZE: Final = 20
"""Messages a second, unless all are wanted."""

MAX_MESSAGES: Final = 200
WAIT_MS: Final = 2_000
"""How long a broker may hold a request; less than the time limit of a tool."""

RETRY_S: Final = 1.0
MARKS: Final = {"came": "+", "left": "-", "problem": "!", "admin": "*"}
KINDS: Final = {
    "messages": (), "clients": ("came", "left"), "problems": ("problem",),
    "admin": ("admin",),
}  # fmt: skip

Row = dict[str, Any]


class TailOptions(NamedTuple):
    """What is shown, and how."""

    topics: str
    key: str
    text: str
    only: str
    shows_all: bool
    shows_system: bool
    as_json: bool

    def fields(self) -> dict[str, object]:
        """Return the fields of a request."""
        return {
            "topics": self.topics, "key": self.key, "text": self.text,
            "n": MAX_MESSAGES if self.shows_all else SAMPLE_SIZE, "waitMs": WAIT_MS,
            "skip": 0 if self.shows_all else 1, "system": int(self.shows_system),
        }  # fmt: skip


class FollowNotSupported(RmqError):
    """A broker does not know the request."""


@click.command("tail")
@click.option(
    "-t",
    "--topics",
    default="",
    metavar="PATTERN",
    shell_complete=completion.topics,
    help="Only these, with * and ?.",
)
@click.option("-k", "--key", default="", help="Only messages with this in a key.")
@click.option("--grep", "text", default="", help="Only messages with this text.")
@click.option("--only", type=click.Choice(list(KINDS)), help="Only lines of this kind.")
@click.option(
    "-a",
    "--all",
    "shows_all",
    is_flag=True,
    help=f"All messages, not {SAMPLE_SIZE} a second.",
)
@click.option("--system", "shows_system", is_flag=True, help="Internal topics, too.")
@click.option("-b", "--broker", metavar="HOST:PORT", help="Only this broker.")
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many lines.")
@click.option("-J", "--json", "as_json", is_flag=True, help="One JSON object a line.")
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
    """Show what happens on all brokers: messages, clients, problems, changes.

    Nothing is committed, and no consumer notices. Ctrl-C ends it.

    \b
    rmq tail                        everything
    rmq tail -t 'order-*' -k 4711   messages of these topics with this key
    rmq tail --only problems        what goes wrong
    """  # noqa: D301 - click wants the character itself
    wanted = TailOptions(
        topics, key, text, only or "", shows_all, shows_system, as_json
    )
    printer = _Printer(wanted, count)
    try:
        with settings.admin() as admin:
            try:
                _LogTail(settings, admin, wanted, printer, broker).run()
            except FollowNotSupported:
                _pull_topic(settings, admin, wanted, printer)
    except RmqError as error:
        exit_with_error(error)
    except (KeyboardInterrupt, _Enough):
        return


class _Enough(Exception):
    """As many lines were shown as were wanted."""


class _Printer:
    """Writes lines, each at once."""

    def __init__(self, wanted: TailOptions, count: int | None) -> None:
        self._wanted = wanted
        self._left = count
        self._is_terminal = sys.stdout.isatty()

    def message(self, row: Row) -> None:
        """Write a message."""
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

    def event(self, row: Row) -> None:
        """Write something that happened."""
        if self._wanted.as_json:
            self._write(escape_json(row))
            return
        mark, place, say = (
            MARKS[row["kind"]],
            escape_controls(row["place"]),
            escape_controls(row["say"]),
        )
        if self._is_terminal:
            self._write(
                fit_line(f"{time_of_day(row['at_ms'])}  {mark} {place:<16} {say}")
            )
        else:
            self._write("\t".join((utc_time(row["at_ms"]), row["kind"], place, say)))

    def note(self, text: str) -> None:
        """Write a hint, which is no answer."""
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
    """A request is open at each broker, until Ctrl-C."""

    def __init__(
        self, settings: ToolSettings, admin: AdminClient, wanted: TailOptions,
        printer: _Printer, broker: str | None,
    ) -> None:  # fmt: skip
        self._settings, self._wanted, self._printer = settings, wanted, printer
        self._admin = admin
        self._addresses = (
            [broker] if broker else [each.address for each in admin.masters()]
        )
        self._has_heard = False

    def run(self) -> None:
        """Ask again and again; a broker that goes away is asked until it is back."""
        if not self._addresses:
            raise RmqError("no broker is registered with this name server")
        for address in self._addresses:
            self._admin.link(address)  # says best what is wrong with it
        be_quiet()
        asyncio.run(self._run())

    async def _run(self) -> None:
        async with self._settings.client() as client:
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
            asked = request(OwnRequestCode.FOLLOW_LOG, self._wanted.fields() | place)
            try:
                answer = await client.request(address, asked, timeout_ms)
            except PeerError:
                if not self._has_heard:
                    raise
                self._printer.note("no answer, trying again")
                await asyncio.sleep(RETRY_S)
                continue
            self._has_heard = True
            told = _decode_answer(address, answer)
            place = {"offset": told["offset"], "event": told["event"]}
            came = told["put"] - (told["put"] if put is None else put)
            put = told["put"]
            if self._show(told, came):
                await asyncio.sleep(1.0)

    def _show(self, told: Row, came: int) -> bool:
        """Show an answer; True if more came than a second shows."""
        only, rows = self._wanted.only, told["rows"]
        for event in told["events"]:
            if not only or event["kind"] in KINDS[only]:
                self._printer.event(event)
        if only and only != "messages":
            return False
        for row in rows:
            self._printer.message(row)
        if self._wanted.shows_all or len(rows) < SAMPLE_SIZE:
            return False
        self._printer.note(
            f"{SAMPLE_SIZE} shown of {came:,} (-a all, -t 'order-*' fewer)"
        )
        return True


def _decode_answer(address: str, answer: Command) -> Row:
    if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
        raise FollowNotSupported
    if answer.code != ResponseCode.SUCCESS:
        raise AnswerRefused(address, answer.code, answer.remark or "")
    told: Row = fastjson.loads(answer.body)
    return told


# -- brokers of Java


def _pull_topic(
    settings: ToolSettings, admin: AdminClient, wanted: TailOptions, printer: _Printer
) -> None:
    """Follow one topic by pulls, which every broker knows."""
    if not wanted.topics or any(each in wanted.topics for each in "*?["):
        raise RmqError(
            "a broker of Java has no log to follow: name a topic, rmq tail -t TOPIC"
        )

    def write(message: ReceivedMessage) -> None:
        row = pulled_row(message)
        if wanted.key in row["key"] and wanted.text in row["text"]:
            printer.message(row)

    choice = Choice(wanted.topics, "*", None, "last", None, None, stops_at_end=False)
    TopicReader(settings, admin, choice).run(write, None)


def pulled_row(message: ReceivedMessage) -> Row:
    """Return a pulled message as request 20004 shows it."""
    found = message_object(message)
    return {
        "topic": message.topic, "queue": message.queue.queue_id,
        "offset": str(message.queue_offset), "id": message.msg_id,
        "stored": message.stored_ms, "born": message.born_ms,
        "key": found["keys"] or "", "tag": found["tags"] or "",
        "size": len(message.body), "again": message.reconsume_times,
        "text": message.body.decode("utf-8", "backslashreplace"),
    }  # fmt: skip
