"""The verbs of `rmq message`."""

import re
from collections.abc import Iterator
from typing import Final

import click

from rmq.cli.admin.base import Output, Sheet, Table
from rmq.cli.admin.messages import (
    LAST_MS,
    consumed_by_group,
    describe_message,
    find_by_id,
    find_by_key,
    message_table,
    query_msg_by_id,
    query_msg_by_offset,
    query_msg_trace_by_id,
)
from rmq.cli.admin.queues import read_queue
from rmq.cli.failures import ExplainedError, Failure
from rmq.cli.nouns.verb import register_verb
from rmq.cli.terminal.progress import Progress
from rmq.cli.terminal.text import parse_time_ms
from rmq.client.admin import AdminClient, SeveralRegistered
from rmq.core.humanize import count_text
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import ResponseCode
from rmq.protocol.records import StoredMessage, plain_body
from rmq.protocol.topics import TRACE_TOPIC

PLACE: Final = re.compile(r"(?:(?P<broker>[^:]+):)?(?P<queue>\d+):(?P<offset>\d+)")

_topic = click.argument("topic")


@register_verb(
    "message", "get",
    "WHICH is a message id, or QUEUE:OFFSET as rmq consume shows it. With several "
    "brokers it is BROKER:QUEUE:OFFSET.",
)  # fmt: skip
@_topic
@click.argument("which")
@click.option("--hex", "is_hex", is_flag=True, help="Print the body in hexadecimal.")
def get_message(admin: AdminClient, topic: str, which: str, *, is_hex: bool) -> Output:
    form = "hex" if is_hex else "utf8"
    match = PLACE.fullmatch(which)
    if match is None:
        return query_msg_by_id(admin, which, topic, None, None, form)
    broker = match["broker"]
    if broker is None:
        names = sorted({each.name for each in admin.topic_brokers(topic)})
        if not names:
            raise ExplainedError(
                Failure(
                    f"no broker has topic {topic} now",
                    "the name server has the topic, but its broker is down",
                    "start the broker",
                ),
                is_refusal=True,
            )
        if len(names) > 1:
            raise SeveralRegistered("broker", names, "BROKER:QUEUE:OFFSET:")
        (broker,) = names
    queue, offset = int(match["queue"]), int(match["offset"])
    return query_msg_by_offset(admin, topic, broker, queue, offset, None, form)


@register_verb(
    "message", "find",
    "With --key it asks the index. Without --key it reads the topic from --from to "
    "--to.",
)  # fmt: skip
@_topic
@click.option("-k", "--key", help="Only messages with this key.")
@click.option("-t", "--tag", help="Only messages with this tag.")
@click.option("--grep", "text", help="Only bodies with this text.")
@click.option("--from", "begin", metavar="TIME", help="First store time, or 10m (ago).")
@click.option("--to", "end", metavar="TIME", help="Last store time.")
@click.option(
    "-l", "--limit", type=click.IntRange(1), default=64, show_default=True,
    help="Maximum number of messages to show.",
)  # fmt: skip
def find_messages(
    admin: AdminClient,
    topic: str,
    key: str | None,
    tag: str | None,
    text: str | None,
    begin: str | None,
    end: str | None,
    limit: int,
) -> Output:
    looked, found = 0, []
    records = _read_messages(admin, topic, key, tag, begin, end)
    with Progress("read") as progress:
        for record in records:
            looked += 1
            progress.add(1)
            if _is_wanted(record, tag, text):
                found.append(describe_message(record))
            if len(found) == limit:
                break
    more = f"; the first {limit}, -l shows more" if len(found) == limit else ""
    return message_table(found)._replace(
        note=f"{count_text(looked, 'message')} read{more}"
    )


def _read_messages(
    admin: AdminClient,
    topic: str,
    key: str | None,
    tag: str | None,
    begin: str | None,
    end: str | None,
) -> Iterator[StoredMessage]:
    """Yield the messages with a key, or all between two times."""
    if key is not None:
        begin_ms = parse_time_ms(begin) if begin else 0
        end_ms = parse_time_ms(end) if end else LAST_MS
        yield from find_by_key(
            admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=10_000
        )
        return
    for queue in admin.queues(topic):
        yield from read_queue(admin, topic, queue, begin, end, tag or "*")


def _is_wanted(record: StoredMessage, tag: str | None, text: str | None) -> bool:
    if tag is not None and record.properties.get("TAGS") != tag:
        return False
    return text is None or text.encode() in plain_body(record)


@register_verb(
    "message", "track",
    "The trace needs clients that send it (enableTrace).",
)  # fmt: skip
@_topic
@click.argument("message_id", metavar="ID")
def track_message(admin: AdminClient, topic: str, message_id: str) -> Output:
    record = find_by_id(admin, message_id, topic)
    described = describe_message(record)
    rows: list[tuple[object, ...]] = [
        ("group", group, None, state)
        for group, state in consumed_by_group(admin, described).items()
    ]
    rows += _trace_rows(admin, str(described["msgId"]))
    facts = ("msgId", "topic", "queueId", "queueOffset", "keys", "storeTimestamp")
    table = Table(("kind", "group", "timestamp", "state"), rows)
    return Sheet({name: described[name] for name in facts}, "events", table)


def _trace_rows(admin: AdminClient, message_id: str) -> list[tuple[object, ...]]:
    """Return the events that clients have traced; none without the topic of traces."""
    try:
        traces = query_msg_trace_by_id(
            admin, message_id, TRACE_TOPIC, "0", str(LAST_MS), 64
        )
    except AnswerRefused as error:
        if error.code != ResponseCode.TOPIC_NOT_EXIST:
            raise
        return []
    assert isinstance(traces, Table), message_id
    return [
        (f"trace {kind}", group, _parse_number(at), "traced")
        for kind, at, group, _, _ in traces.rows
    ]


def _parse_number(text: object) -> object:
    return int(text) if isinstance(text, str) and text.isdecimal() else text
