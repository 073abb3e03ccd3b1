"""Commands that show the messages and entries of queues."""

from collections.abc import Iterator
from typing import Any

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    bool_option,
    broker_option,
    register_command,
    topic_option,
)
from rmq.cli.admin.messages import describe_message, message_table
from rmq.cli.terminal.text import parse_time_ms
from rmq.client.admin import AdminClient, Queue
from rmq.core.errors import RequestRejected
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.records import StoredMessage, decode_stored


@register_command("printMsg")
@topic_option
@click.option("-c", "--charsetName", "charset", help="Ignored: UTF-8.")
@click.option("-s", "--subExpression", "expression", default="*")
@click.option("-b", "--beginTimestamp", "begin")
@click.option("-e", "--endTimestamp", "end")
@bool_option("-d", "--printBody", "with_body", default=True)
@click.option("-l", "--lmqParentTopic", "parent", help="Ignored.")
def print_msg(
    admin: AdminClient,
    topic: str,
    charset: str | None,
    expression: str,
    begin: str | None,
    end: str | None,
    parent: str | None,
    *,
    with_body: bool,
) -> Output:
    return _print_table(
        [
            record
            for queue in admin.queues(topic)
            for record in read_queue(admin, topic, queue, begin, end, expression)
        ],
        with_body=with_body,
    )


@register_command("printMsgByQueue")
@topic_option
@click.option("-a", "--brokerName", "broker", required=True)
@click.option("-i", "--queueId", "queue_id", type=int, required=True)
@click.option("-c", "--charsetName", "charset", help="Ignored: UTF-8.")
@click.option("-s", "--subExpression", "expression", default="*")
@click.option("-b", "--beginTimestamp", "begin")
@click.option("-e", "--endTimestamp", "end")
@bool_option("-p", "--print", "wanted", default=True)
@bool_option("-d", "--printBody", "with_body", default=True)
@bool_option("-f", "--calculate", "counts", default=False)
def print_msg_by_queue(  # noqa: PLR0913 - one parameter for each option
    admin: AdminClient,
    topic: str,
    broker: str,
    queue_id: int,
    charset: str | None,
    expression: str,
    begin: str | None,
    end: str | None,
    *,
    wanted: bool,
    with_body: bool,
    counts: bool,
) -> Output:
    for queue in admin.queues(topic):
        if (queue.broker, queue.queue_id) == (broker, queue_id):
            found = read_queue(admin, topic, queue, begin, end, expression)
            if counts:
                return _tag_counts(found)
            return _print_table(list(found) if wanted else [], with_body=with_body)
    raise click.UsageError(f"broker {broker} has no queue {queue_id} of {topic}")


def _tag_counts(records: Iterator[StoredMessage]) -> Table:
    counts: dict[str, int] = {}
    for record in records:
        tag = record.properties.get("TAGS", "")
        counts[tag] = counts.get(tag, 0) + 1
    rows = sorted(counts.items(), key=lambda item: -item[1])
    return Table(("tag", "count"), rows)


def _print_table(records: list[StoredMessage], *, with_body: bool) -> Table:
    found = [describe_message(record) for record in records]
    if not with_body:
        for each in found:
            each["body"] = None
    return message_table(found)


def read_queue(
    admin: AdminClient,
    topic: str,
    queue: Queue,
    begin: str | None = None,
    end: str | None = None,
    expression: str = "*",
    offset: int | None = None,
) -> Iterator[StoredMessage]:
    """Yield the messages of a queue from an offset or a time to its current end."""
    if offset is None:
        offset = _find_offset(admin, topic, queue, begin, RequestCode.GET_MIN_OFFSET)
    last = _find_offset(admin, topic, queue, end, RequestCode.GET_MAX_OFFSET)
    assert offset >= 0 <= last, f"{queue}: {offset} to {last}"
    while offset < last:
        body, following, code = admin.pull(
            topic, queue, offset, count=min(32, last - offset), expression=expression
        )
        if code == ResponseCode.SUCCESS:
            for record in decode_stored(body):
                if record.queue_offset >= last:
                    return
                yield record
        if following <= offset:
            return
        offset = following


def _find_offset(
    admin: AdminClient, topic: str, queue: Queue, text: str | None, code: int
) -> int:
    """Return the offset at a time; without a time the answer to request `code`."""
    if text is None:
        return admin.offset(code, topic, queue)
    at_ms = parse_time_ms(text)
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return admin.offset(search, topic, queue, timestamp=at_ms)


@register_command("consumeMessage")
@topic_option
@click.option("-b", "--brokerName", "broker")
@click.option("-o", "--offset", type=int)
@click.option("-i", "--queueId", "queue_id", type=int)
@click.option("-c", "--MessageNumber", "count", type=click.IntRange(1), default=128)
@click.option(
    "-g", "--consumerGroup", "group", help="Ignored: the command commits nothing."
)
@click.option("-s", "--beginTimestamp", "begin")
@click.option("-e", "--endTimestamp", "end")
def consume_message(  # noqa: PLR0913 - one parameter for each option
    admin: AdminClient,
    topic: str,
    broker: str | None,
    offset: int | None,
    queue_id: int | None,
    count: int,
    group: str | None,
    begin: str | None,
    end: str | None,
) -> Output:
    found: list[dict[str, Any]] = []
    for queue in admin.queues(topic):
        if broker not in (None, queue.broker) or queue_id not in (None, queue.queue_id):
            continue
        for record in read_queue(admin, topic, queue, begin, end, offset=offset):
            if len(found) == count:
                break
            found.append(describe_message(record))
    return message_table(found)


@register_command("queryCq")
@topic_option
@click.option("-q", "--queue", "queue_id", type=int, required=True)
@click.option("-i", "--index", type=int, required=True)
@click.option("-c", "--count", type=int, default=10)
@broker_option
@click.option("-g", "--consumer", "group")
def query_cq(
    admin: AdminClient,
    topic: str,
    queue_id: int,
    index: int,
    count: int,
    broker: str | None,
    group: str | None,
) -> Output:
    address = broker or admin.topic_brokers(topic)[0].address
    fields: dict[str, object] = {
        "topic": topic, "queueId": queue_id, "index": index, "count": count,
    }  # fmt: skip
    if group:
        fields["consumerGroup"] = group
    answer = admin.request(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
    if not answer.body:
        raise RequestRejected(answer.code, answer.remark or "no entry at this index")
    value = admin.request_json(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
    columns = ("physicOffset", "physicSize", "tagsCode")
    return Table(columns, [[e[name] for name in columns] for e in value["queueData"]])
