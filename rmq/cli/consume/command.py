"""`rmq consume`: look at the messages of a topic, or take part in a consumer group."""

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import click

from rmq.cli import completion
from rmq.cli.failures import Subject, end
from rmq.cli.terminal.text import (
    clock,
    fitted,
    harmless,
    harmless_body,
    harmless_json,
    iso,
    time_ms,
)
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.core.errors import RmqError

if TYPE_CHECKING:
    from rmq._fastpath.client.messages import ReceivedMessage

_FIELD: Final = re.compile(r"%(.)|\\([nt0\\])", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}

Write = Callable[["ReceivedMessage"], None]


# -- output


def _writer(form: str | None, *, as_json: bool, is_raw: bool) -> Write:
    """Return the function that writes one message to stdout."""
    if as_json:
        return lambda message: click.echo(harmless_json(as_object(message)))
    if form is not None:
        return lambda message: _write_form(form, message, is_raw=is_raw)
    if is_raw:
        return _write_raw
    if sys.stdout.isatty():
        return lambda message: click.echo(fitted(_line(message)))
    return lambda message: click.echo("\t".join(_columns(message)))


def _write_raw(message: "ReceivedMessage") -> None:
    sys.stdout.buffer.write(message.body + b"\n")
    sys.stdout.buffer.flush()


def _write_form(form: str, message: "ReceivedMessage", *, is_raw: bool) -> None:
    text = _FIELD.sub(lambda match: _value(match, message, is_raw=is_raw), form)
    click.echo(text.encode("utf-8", "surrogateescape") if is_raw else text, nl=False)


def _value(match: re.Match[str], message: "ReceivedMessage", *, is_raw: bool) -> str:
    letter, escape = match.groups()
    if escape:
        return _ESCAPES[escape]
    properties = message.properties
    if letter == "v":
        body = message.body
        return (
            body.decode("utf-8", "surrogateescape") if is_raw else harmless_body(body)
        )
    if letter == "p":
        return json.dumps(dict(properties))
    texts = {
        "t": message.topic, "q": str(message.queue.queue_id),
        "o": str(message.queue_offset), "k": properties.get("KEYS", ""),
        "g": properties.get("TAGS", ""), "i": message.msg_id,
        "d": iso(message.stored_ms), "s": str(len(message.body)), "%": "%",
    }  # fmt: skip
    return harmless(texts.get(letter, match[0]))


def _line(message: "ReceivedMessage") -> str:
    properties = message.properties
    parts = [
        clock(message.stored_ms),
        f"{message.queue.queue_id}:{message.queue_offset}",
        harmless(properties.get("KEYS", "")),
        harmless(properties.get("TAGS", "")),
        harmless_body(message.body),
    ]
    return "  ".join(part for part in parts if part)


def _columns(message: "ReceivedMessage") -> list[str]:
    properties = message.properties
    return [
        iso(message.stored_ms), str(message.queue.queue_id), str(message.queue_offset),
        harmless(properties.get("KEYS", "")), harmless(properties.get("TAGS", "")),
        harmless_body(message.body),
    ]  # fmt: skip


def as_object(message: "ReceivedMessage") -> dict[str, object]:
    """Return a message for JSON; a body that is no UTF-8 is in `bodyBase64`."""
    body = message.body
    found: dict[str, object] = {
        "topic": message.topic, "queueId": message.queue.queue_id,
        "queueOffset": message.queue_offset, "msgId": message.msg_id,
        "keys": message.properties.get("KEYS"), "tags": message.properties.get("TAGS"),
        "storeTime": iso(message.stored_ms),
        "properties": dict(message.properties),
    }  # fmt: skip
    try:
        found["body"] = body.decode("utf-8")
    except UnicodeDecodeError:
        found["bodyBase64"] = base64.b64encode(body).decode()
    return found


# -- the command


@click.command()
@click.argument("topic", shell_complete=completion.topics)
@click.option(
    "-g", "--group", shell_complete=completion.groups,
    help="Take part in a consumer group, and commit.",
)  # fmt: skip
@click.option("-c", "--count", type=click.IntRange(1), help="Stop after so many.")
@click.option("-e", "--end", "stops_at_end", is_flag=True, help="Stop at the end.")
@click.option(
    "--from", "begin", metavar="TIME",
    help="first, last, or a time: 10m (ago), 2026-11-21T03:01:54, milliseconds.",
)  # fmt: skip
@click.option(
    "-o", "--offset", type=click.IntRange(0), help="From this offset; with -q."
)
@click.option(
    "-q", "--queue", "queue_id", type=click.IntRange(0), help="Only this queue."
)
@click.option("-t", "--tags", metavar="'A || B'", help="Only messages with these tags.")
@click.option("--sql", metavar="EXPRESSION", help="Only messages that match, SQL92.")
@click.option(
    "-f", "--format", "form", metavar="FORMAT",
    help="%t topic, %q queue, %o offset, %k key, %g tag, %i id, %d time, %s size, "
    "%v body, %p properties as JSON, %%; \\n, \\t.",
)  # fmt: skip
@click.option(
    "-J", "--json", "as_json", is_flag=True, help="One JSON object a message."
)
@click.option("--raw", "is_raw", is_flag=True, help="Bodies as they are, into a pipe.")
@with_settings
def consume(  # noqa: PLR0913 - one parameter for each option
    settings: ToolSettings,
    topic: str,
    group: str | None,
    count: int | None,
    begin: str | None,
    offset: int | None,
    queue_id: int | None,
    tags: str | None,
    sql: str | None,
    form: str | None,
    *,
    stops_at_end: bool,
    as_json: bool,
    is_raw: bool,
) -> None:
    """Show the newest messages of a topic, then those that come. Ctrl-C ends it.

    Without a group nothing is committed, and no consumer notices.

    \b
    rmq consume Hello                       the newest 10, then what comes
    rmq consume Hello --from first -e       all that there is
    rmq consume Hello -g billing -c 2 -f '%q:%o %k %v\\n'
    """  # noqa: D301 - click wants the character itself
    _check(group, begin, queue_id, offset, tags, sql, is_raw=is_raw)
    # imported on use: names complete and wrong words end without an event loop
    from rmq.cli.consume.stream import Choice, Follower
    from rmq.client.subscription import Sql, subscription

    expression = Sql(sql) if sql else tags or "*"
    subscription(topic, expression)  # a wrong one is to fail here
    start = begin if begin in (None, "first", "last") else time_ms(str(begin))
    choice = Choice(topic, expression, group, start, queue_id, offset, stops_at_end)
    write = _writer(form, as_json=as_json, is_raw=is_raw)
    with settings.admin() as admin:
        try:
            Follower(settings, admin, choice).run(write, count)
        except RmqError as error:
            end(error, admin, Subject(topic, group or "", action="Sub"))


def _check(
    group: str | None,
    begin: str | None,
    queue_id: int | None,
    offset: int | None,
    tags: str | None,
    sql: str | None,
    *,
    is_raw: bool,
) -> None:
    if offset is not None and queue_id is None:
        raise click.UsageError("-o needs -q: each queue has offsets of its own")
    if group and (queue_id is not None or offset is not None):
        raise click.UsageError("a group divides the queues itself: leave out -q and -o")
    if tags and sql:
        raise click.UsageError("give --tags or --sql, not both")
    if is_raw and sys.stdout.isatty():
        raise click.UsageError(
            "--raw is for pipes and files: bodies may drive a terminal"
        )
