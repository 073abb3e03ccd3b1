"""`rmq consume`: look at the messages of a topic, or take part in a consumer group."""

import base64
import json
import re
import sys
from collections.abc import Callable
from typing import Final

import click

from rmq.cli import completion
from rmq.cli.failures import Subject, end
from rmq.cli.text import (
    clock,
    fitted,
    harmless,
    harmless_body,
    harmless_json,
    iso,
    time_ms,
)
from rmq.cli.tool_settings import ToolSettings, with_settings
from rmq.client.member import Member
from rmq.client.reader import Choice, Reader
from rmq.client.subscription import Sql, subscription
from rmq.client.window import Window
from rmq.errors import RmqError
from rmq.protocol.records import StoredMessage, plain_body
from rmq.protocol.topics import is_retry_topic

_FIELD: Final = re.compile(r"%(.)|\\([nt0\\])", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "0": "\0", "\\": "\\"}

Write = Callable[[StoredMessage], None]


# -- output


def _writer(form: str | None, *, as_json: bool, is_raw: bool) -> Write:
    """Return the function that writes one message to stdout."""
    if as_json:
        return lambda record: click.echo(harmless_json(as_object(record)))
    if form is not None:
        return lambda record: _write_form(form, record, is_raw=is_raw)
    if is_raw:
        return _write_raw
    if sys.stdout.isatty():
        return lambda record: click.echo(fitted(_line(record)))
    return lambda record: click.echo("\t".join(_columns(record)))


def _write_raw(record: StoredMessage) -> None:
    sys.stdout.buffer.write(plain_body(record) + b"\n")
    sys.stdout.buffer.flush()


def _write_form(form: str, record: StoredMessage, *, is_raw: bool) -> None:
    text = _FIELD.sub(lambda match: _value(match, record, is_raw=is_raw), form)
    click.echo(text.encode("utf-8", "surrogateescape") if is_raw else text, nl=False)


def _value(match: re.Match[str], record: StoredMessage, *, is_raw: bool) -> str:
    letter, escape = match.groups()
    if escape:
        return _ESCAPES[escape]
    properties = record.properties
    if letter == "v":
        body = plain_body(record)
        return (
            body.decode("utf-8", "surrogateescape") if is_raw else harmless_body(body)
        )
    if letter == "p":
        return json.dumps(dict(properties))
    texts = {
        "t": record.topic, "q": str(record.queue_id), "o": str(record.queue_offset),
        "k": properties.get("KEYS", ""), "g": properties.get("TAGS", ""),
        "i": _id(record), "d": iso(record.store_timestamp),
        "s": str(len(record.body)), "%": "%",
    }  # fmt: skip
    return harmless(texts.get(letter, match[0]))


def _id(record: StoredMessage) -> str:
    return record.properties.get("UNIQ_KEY", record.offset_msg_id)


def _line(record: StoredMessage) -> str:
    properties = record.properties
    parts = [
        clock(record.store_timestamp),
        f"{record.queue_id}:{record.queue_offset}",
        harmless(properties.get("KEYS", "")),
        harmless(properties.get("TAGS", "")),
        harmless_body(plain_body(record)),
    ]
    return "  ".join(part for part in parts if part)


def _columns(record: StoredMessage) -> list[str]:
    properties = record.properties
    return [
        iso(record.store_timestamp), str(record.queue_id), str(record.queue_offset),
        harmless(properties.get("KEYS", "")), harmless(properties.get("TAGS", "")),
        harmless_body(plain_body(record)),
    ]  # fmt: skip


def as_object(record: StoredMessage) -> dict[str, object]:
    """Return a message for JSON; a body that is no UTF-8 is in `bodyBase64`."""
    body = plain_body(record)
    found: dict[str, object] = {
        "topic": record.topic, "queueId": record.queue_id,
        "queueOffset": record.queue_offset, "msgId": _id(record),
        "keys": record.properties.get("KEYS"), "tags": record.properties.get("TAGS"),
        "storeTime": iso(record.store_timestamp),
        "properties": dict(record.properties),
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
    wanted = subscription(topic, Sql(sql) if sql else tags or "*")
    start = begin if begin in (None, "first", "last") else time_ms(str(begin))
    choice = Choice(group, start, queue_id, offset, stops_at_end)
    write = _writer(form, as_json=as_json, is_raw=is_raw)
    with settings.admin() as admin, Window() as window:
        try:
            reader = Reader(admin, window, wanted, choice, _notify)
            _follow(reader, write, count)
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


def _notify(sentence: str) -> None:
    click.echo(f"rmq: {sentence}", err=True)


def _follow(reader: Reader, write: Write, count: int | None) -> None:
    """Write messages until the count, the end or Ctrl-C; then commit and leave."""
    done = 0
    try:
        for position, record in reader.records():
            write(record)
            position.written = record.queue_offset + 1
            done += 1
            if done == count:
                return
    except KeyboardInterrupt:
        pass
    finally:
        if reader.member is not None:
            _leave(reader, reader.member)


def _leave(reader: Reader, member: Member) -> None:
    """Commit what was written; what was only received comes to other members."""
    reader.commit(member)
    member.leave()
    texts = [
        f"queue {each.queue.queue_id} up to {each.written}"
        for each in reader.positions.values()
        if not is_retry_topic(each.topic)
    ]
    click.echo(f"committed {', '.join(texts) or 'nothing'}", err=True)
