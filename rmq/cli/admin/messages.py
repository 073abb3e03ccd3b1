"""Commands that look for messages, print them and send some."""

from collections.abc import Iterator
from typing import Any, Final

import click

from rmq.cli.admin.base import (
    Shown,
    Table,
    admin_command,
    broker_option,
    cluster_option,
    flag,
    topic_option,
)
from rmq.cli.admin.groups import progress
from rmq.cli.admin.topics import groups_of
from rmq.cli.terminal.text import time_ms
from rmq.client.admin import AdminClient, Queue
from rmq.core.errors import RequestRejected
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.hosts import host_text
from rmq.protocol.records import StoredMessage, decode_stored, plain_body

LAST_MS: Final = (1 << 63) - 1
FORMATS: Final = ("utf8", "hex")
PULL_OFFSET_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED


def described(record: StoredMessage, body_format: str = "utf8") -> dict[str, Any]:
    """Return the members of a message that tools show."""
    return {
        "msgId": record.properties.get("UNIQ_KEY", record.offset_msg_id),
        "offsetMsgId": record.offset_msg_id,
        "topic": record.topic,
        "tags": record.properties.get("TAGS"),
        "keys": record.properties.get("KEYS"),
        "queueId": record.queue_id,
        "queueOffset": record.queue_offset,
        "commitLogOffset": record.physical_offset,
        "reconsumeTimes": record.reconsume_times,
        "bornTimestamp": record.born_timestamp,
        "storeTimestamp": record.store_timestamp,
        "bornHost": host_text(record.born_host),
        "storeHost": host_text(record.store_host),
        "sysFlag": record.sys_flag,
        "properties": dict(record.properties),
        "body": shown_body(record, body_format),
    }


def shown_body(record: StoredMessage, body_format: str) -> str:
    """Return the body as text; bytes that are no text are escaped."""
    body = plain_body(record)
    if body_format == "hex":
        return body.hex()
    return body.decode("utf-8", "backslashreplace")


format_option = click.option(
    "-f", "--bodyFormat", "body_format", type=click.Choice(FORMATS), default="utf8"
)


@admin_command("queryMsgById")
@click.option("-i", "--msgId", "message_ids", required=True, help="Several with ,")
@click.option("-t", "--topic", help="Topic to search, for ids of clients.")
@click.option("-g", "--consumerGroup", "group")
@click.option("-d", "--clientId", "client", help="Let this client consume it.")
@format_option
def query_msg_by_id(
    admin: AdminClient,
    message_ids: str,
    topic: str | None,
    group: str | None,
    client: str | None,
    body_format: str,
) -> Shown:
    """Show a message by the id that a send returned."""
    found = []
    for message_id in message_ids.split(","):
        record = by_id(admin, message_id.strip(), topic)
        if group and client:
            return consume_directly(admin, group, client, record)
        found.append(described(record, body_format))
    return _messages(admin, found)


def by_id(admin: AdminClient, message_id: str, topic: str | None) -> StoredMessage:
    """Find a message by its offset id, or by its unique key in a topic."""
    if topic:
        records = by_key(admin, topic, message_id, unique=True)
        if records:
            return records[0]
    try:
        packed = bytes.fromhex(message_id)
    except ValueError:
        packed = b""
    if len(packed) not in (16, 28):
        raise click.UsageError(f"{message_id} is no message id of 32 or 56 digits")
    offset = int.from_bytes(packed[-8:])
    fields = {"offset": offset, "topic": topic or ""}
    host, port = packed[:-12], int.from_bytes(packed[-12:-8])
    address = host_text(host + port.to_bytes(4))
    body = admin.ask(address, RequestCode.VIEW_MESSAGE_BY_ID, fields).body
    return decode_stored(body)[0]


def by_key(
    admin: AdminClient,
    topic: str,
    key: str,
    *,
    unique: bool = False,
    begin_ms: int = 0,
    end_ms: int = LAST_MS,
    count: int = 64,
    key_type: str | None = None,
) -> list[StoredMessage]:
    """Ask all brokers of a topic for messages with a key."""
    fields: dict[str, object] = {
        "topic": topic,
        "key": key,
        "maxNum": count,
        "beginTimestamp": begin_ms,
        "endTimestamp": end_ms,
        "_UNIQUE_KEY_QUERY": unique,
    }
    if key_type:
        fields["indexType"] = key_type
    records: list[StoredMessage] = []
    for host in admin.hosts(topic):
        answer = admin.answer(host.address, RequestCode.QUERY_MESSAGE, fields)
        if answer.code == ResponseCode.SUCCESS:
            records += decode_stored(answer.body)
        elif answer.code != ResponseCode.QUERY_NOT_FOUND:
            raise AnswerRefused(host.address, answer.code, answer.remark or "")
    if unique:
        records = [r for r in records if r.properties.get("UNIQ_KEY") == key]
    return records[:count]


def consume_directly(
    admin: AdminClient, group: str, client: str, record: StoredMessage
) -> dict[str, Any]:
    """Let one client of a group consume a message, and return the result."""
    fields = {
        "consumerGroup": group,
        "clientId": client,
        "topic": record.topic,
        "msgId": record.offset_msg_id,
    }
    address = host_text(record.store_host)
    result = admin.value(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    assert isinstance(result, dict), client
    return result


def _messages(admin: AdminClient, found: list[dict[str, Any]]) -> Shown:
    """Show one message in full with who has consumed it, several as a table."""
    if len(found) == 1:
        message = found[0]
        message["consumers"] = _tracks(admin, message)
        return message
    return _table(found)


def _table(found: list[dict[str, Any]]) -> Table:
    columns = (
        "msgId",
        "queueId",
        "queueOffset",
        "storeTimestamp",
        "tags",
        "keys",
        "body",
    )
    return Table(columns, [[each[name] for name in columns] for each in found])


def _tracks(admin: AdminClient, message: dict[str, Any]) -> dict[str, str]:
    """Return, for each group of the topic, whether it has consumed the message."""
    tracks = {}
    for group in groups_of(admin, message["topic"]):
        for queue, each in progress(admin, group, message["topic"]):
            if queue["queueId"] == message["queueId"]:
                is_past = each["consumerOffset"] > message["queueOffset"]
                tracks[group] = "CONSUMED" if is_past else "NOT_CONSUME_YET"
    return tracks


@admin_command("queryMsgByKey")
@topic_option
@click.option("-k", "--msgKey", "key", required=True)
@click.option("-b", "--beginTimestamp", "begin", default="0")
@click.option("-e", "--endTimestamp", "end", default=str(LAST_MS))
@click.option("-c", "--maxNum", "count", type=click.IntRange(1), default=64)
@click.option("-p", "--keyType", "key_type", type=click.Choice(["K", "T"]))
@click.option("-l", "--lastKey", "last_key", help="Not used.")
def query_msg_by_key(
    admin: AdminClient,
    topic: str,
    key: str,
    begin: str,
    end: str,
    count: int,
    key_type: str | None,
    last_key: str | None,
) -> Shown:
    """Show messages by a key that their producer set, or by tags (-p T)."""
    begin_ms, end_ms = time_ms(begin), time_ms(end)
    records = by_key(
        admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count,
        key_type=key_type,
    )  # fmt: skip
    return _table([described(record) for record in records])


@admin_command("queryMsgByUniqueKey")
@click.option("-i", "--msgId", "key", required=True)
@topic_option
@click.option("-g", "--consumerGroup", "group")
@click.option("-d", "--clientId", "client", help="Let this client consume it.")
@click.option("-a", "--showAll", "every", is_flag=True)
@cluster_option
@click.option("-s", "--startTime", "begin", default="0")
@click.option("-e", "--endTime", "end", default=str(LAST_MS))
def query_msg_by_unique_key(  # noqa: PLR0913 - one parameter for each option
    admin: AdminClient,
    key: str,
    topic: str,
    group: str | None,
    client: str | None,
    cluster: str | None,
    begin: str,
    end: str,
    *,
    every: bool,
) -> Shown:
    """Show a message by the unique key that its producer made."""
    begin_ms, end_ms = time_ms(begin), time_ms(end)
    records = by_key(admin, topic, key, unique=True, begin_ms=begin_ms, end_ms=end_ms)
    if not records:
        raise AnswerRefused(
            admin.name_servers[0], ResponseCode.NO_MESSAGE, f"no message {key}"
        )
    if group and client:
        return consume_directly(admin, group, client, records[0])
    found = [described(record) for record in records]
    return _table(found) if every else _messages(admin, found[:1])


@admin_command("queryMsgByOffset")
@topic_option
@click.option("-b", "--brokerName", "broker", required=True)
@click.option("-i", "--queueId", "queue_id", type=int, required=True)
@click.option("-o", "--offset", type=int, required=True)
@click.option("-r", "--routeTopic", "route_topic")
@format_option
def query_msg_by_offset(
    admin: AdminClient,
    topic: str,
    broker: str,
    queue_id: int,
    offset: int,
    route_topic: str | None,
    body_format: str,
) -> Shown:
    """Show the message at an offset of a queue."""
    for host in admin.hosts(route_topic or topic):
        if host.name == broker:
            queue = Queue(broker, host.address, queue_id)
            body, _following, code = admin.pull(topic, queue, offset, count=1)
            if code != ResponseCode.SUCCESS:
                raise AnswerRefused(host.address, code, f"no message at {offset}")
            return described(decode_stored(body)[0], body_format)
    raise click.UsageError(f"the topic {topic} is not on a broker {broker}")


TRACE_PLACES: Final = {
    "Pub": (1, 3, 4, 5),
    "SubBefore": (1, 3, 99, 5),
    "SubAfter": (7, 8, 99, 2),
    "EndTransaction": (1, 3, 4, 5),
    "Recall": (1, 3, 4, 5),
}
"""Fields of a line by its kind: time, group, topic and id; 99: it has none."""


@admin_command("queryMsgTraceById")
@click.option("-i", "--msgId", "key", required=True)
@click.option("-t", "--traceTopic", "topic", default="RMQ_SYS_TRACE_TOPIC")
@click.option("-b", "--beginTimestamp", "begin", default="0")
@click.option("-e", "--endTimestamp", "end", default=str(LAST_MS))
@click.option("-c", "--maxNum", "count", type=click.IntRange(1), default=64)
def query_msg_trace_by_id(
    admin: AdminClient, key: str, topic: str, begin: str, end: str, count: int
) -> Shown:
    """Show the trace of a message: who sent and who consumed it."""
    begin_ms, end_ms = time_ms(begin), time_ms(end)
    records = by_key(admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count)
    rows = []
    for record in records:
        for line in plain_body(record).decode("utf-8", "replace").split("\x02"):
            parts = line.split("\x01")
            places = TRACE_PLACES.get(parts[0], ())
            row = [parts[at] if at < len(parts) else "" for at in places]
            if key in row[3:]:
                rows.append((parts[0], *row))
    return Table(("traceType", "timestamp", "group", "topic", "id"), rows)


@admin_command("printMsg")
@topic_option
@click.option("-c", "--charsetName", "charset", help="Not used; UTF-8.")
@click.option("-s", "--subExpression", "expression", default="*")
@click.option("-b", "--beginTimestamp", "begin")
@click.option("-e", "--endTimestamp", "end")
@flag("-d", "--printBody", "with_body", default=True)
@click.option("-l", "--lmqParentTopic", "parent", help="Not used.")
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
) -> Shown:
    """Show the messages of a topic, from time -b to time -e if given."""
    return _printed(
        [
            record
            for queue in admin.queues(topic)
            for record in read_queue(admin, topic, queue, begin, end, expression)
        ],
        with_body=with_body,
    )


@admin_command("printMsgByQueue")
@topic_option
@click.option("-a", "--brokerName", "broker", required=True)
@click.option("-i", "--queueId", "queue_id", type=int, required=True)
@click.option("-c", "--charsetName", "charset", help="Not used; UTF-8.")
@click.option("-s", "--subExpression", "expression", default="*")
@click.option("-b", "--beginTimestamp", "begin")
@click.option("-e", "--endTimestamp", "end")
@flag("-p", "--print", "wanted", default=True)
@flag("-d", "--printBody", "with_body", default=True)
@flag("-f", "--calculate", "counts", default=False)
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
) -> Shown:
    """Show the messages of one queue; with -f the number of messages by tag."""
    for queue in admin.queues(topic):
        if (queue.broker, queue.queue_id) == (broker, queue_id):
            found = read_queue(admin, topic, queue, begin, end, expression)
            if counts:
                return _tag_counts(found)
            return _printed(list(found) if wanted else [], with_body=with_body)
    raise click.UsageError(f"{topic} has no queue {queue_id} on a broker {broker}")


def _tag_counts(records: Iterator[StoredMessage]) -> Table:
    counts: dict[str, int] = {}
    for record in records:
        tag = record.properties.get("TAGS", "")
        counts[tag] = counts.get(tag, 0) + 1
    rows = sorted(counts.items(), key=lambda item: -item[1])
    return Table(("tag", "count"), rows)


def _printed(records: list[StoredMessage], *, with_body: bool) -> Table:
    found = [described(record) for record in records]
    if not with_body:
        for each in found:
            each["body"] = None
    return _table(found)


def read_queue(
    admin: AdminClient,
    topic: str,
    queue: Queue,
    begin: str | None = None,
    end: str | None = None,
    expression: str = "*",
    offset: int | None = None,
) -> Iterator[StoredMessage]:
    """Read a queue from an offset or a time up to its present end."""
    if offset is None:
        offset = _place(admin, topic, queue, begin, RequestCode.GET_MIN_OFFSET)
    last = _place(admin, topic, queue, end, RequestCode.GET_MAX_OFFSET)
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


def _place(
    admin: AdminClient, topic: str, queue: Queue, text: str | None, code: int
) -> int:
    """Return the offset at a time; without a time, the answer to request `code`."""
    if text is None:
        return admin.offset(code, topic, queue)
    at_ms = time_ms(text)
    search = RequestCode.SEARCH_OFFSET_BY_TIMESTAMP
    return admin.offset(search, topic, queue, timestamp=at_ms)


@admin_command("consumeMessage")
@topic_option
@click.option("-b", "--brokerName", "broker")
@click.option("-o", "--offset", type=int)
@click.option("-i", "--queueId", "queue_id", type=int)
@click.option("-c", "--MessageNumber", "count", type=click.IntRange(1), default=128)
@click.option("-g", "--consumerGroup", "group", help="Not used; nothing is committed.")
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
) -> Shown:
    """Show messages of a topic or of one queue, from an offset or a time."""
    found: list[dict[str, Any]] = []
    for queue in admin.queues(topic):
        if broker not in (None, queue.broker) or queue_id not in (None, queue.queue_id):
            continue
        for record in read_queue(admin, topic, queue, begin, end, offset=offset):
            if len(found) == count:
                break
            found.append(described(record))
    return _table(found)


@admin_command("queryCq")
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
) -> Shown:
    """Show entries of a queue: the places of its messages in the log."""
    address = broker or admin.hosts(topic)[0].address
    fields: dict[str, object] = {
        "topic": topic, "queueId": queue_id, "index": index, "count": count,
    }  # fmt: skip
    if group:
        fields["consumerGroup"] = group
    answer = admin.ask(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
    if not answer.body:
        raise RequestRejected(answer.code, answer.remark or "no entry there")
    value = admin.value(address, RequestCode.QUERY_CONSUME_QUEUE, fields)
    columns = ("physicOffset", "physicSize", "tagsCode")
    return Table(columns, [[e[name] for name in columns] for e in value["queueData"]])
