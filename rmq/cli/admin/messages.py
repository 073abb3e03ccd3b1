"""Commands that find messages by id, key or offset."""

from typing import Any, Final

import click

from rmq.cli.admin.base import (
    Output,
    Table,
    cluster_option,
    register_command,
    topic_option,
)
from rmq.cli.admin.progress import queue_progress
from rmq.cli.admin.topics import groups_of
from rmq.cli.failures import ExplainedError, Failure
from rmq.cli.terminal.text import parse_time_ms
from rmq.client.admin import AdminClient, Queue
from rmq.core.errors import PeerError, RmqError
from rmq.outgoing.refused import AnswerRefused
from rmq.protocol.codes import RequestCode, ResponseCode
from rmq.protocol.hosts import host_text
from rmq.protocol.records import StoredMessage, decode_stored, plain_body

LAST_MS: Final = (1 << 63) - 1
FORMATS: Final = ("utf8", "hex")
MAX_PORT: Final = 65_535
PULL_OFFSET_MOVED: Final = ResponseCode.PULL_OFFSET_MOVED


def describe_message(
    record: StoredMessage, body_format: str = "utf8"
) -> dict[str, Any]:
    """Return the fields of a message to print."""
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
        "body": format_body(record, body_format),
    }


def format_body(record: StoredMessage, body_format: str) -> str:
    """Return the body as text with escapes for other bytes, or as hexadecimal."""
    body = plain_body(record)
    if body_format == "hex":
        return body.hex()
    return body.decode("utf-8", "backslashreplace")


format_option = click.option(
    "-f", "--bodyFormat", "body_format", type=click.Choice(FORMATS), default="utf8"
)


@register_command("queryMsgById")
@click.option("-i", "--msgId", "message_ids", required=True, metavar="ID,…")
@click.option("-t", "--topic", help="Topic to search for a unique key.")
@click.option("-g", "--consumerGroup", "group")
@click.option(
    "-d", "--clientId", "client", help="Let this client consume the message. Needs -g."
)
@format_option
def query_msg_by_id(
    admin: AdminClient,
    message_ids: str,
    topic: str | None,
    group: str | None,
    client: str | None,
    body_format: str,
) -> Output:
    found = []
    for message_id in message_ids.split(","):
        record = find_by_id(admin, message_id.strip(), topic)
        if group and client:
            return consume_directly(admin, group, client, record)
        found.append(describe_message(record, body_format))
    return _messages(admin, found)


def find_by_id(admin: AdminClient, message_id: str, topic: str | None) -> StoredMessage:
    """Return a message by its unique key in a topic, or by its offset id."""
    if topic:
        records = find_by_key(admin, topic, message_id, unique=True)
        if records:
            return records[0]
    place = _parse_offset_id(message_id)
    if place is None:
        raise _unknown_id_error(message_id, topic)
    address, offset = place
    fields: dict[str, object] = {"offset": offset, "topic": topic or ""}
    try:
        answer = admin.request(address, RequestCode.VIEW_MESSAGE_BY_ID, fields)
    except PeerError as error:
        if topic is None:
            raise PeerError(
                f"{error}; if the broker has another address now, name the topic "
                "with -t"
            ) from error
        moved = _find_moved(admin, message_id, topic, fields)
        if moved is None:
            raise
        return moved
    return decode_stored(answer.body)[0]


def _parse_offset_id(message_id: str) -> tuple[str, int] | None:
    """Return the broker's address and the position in its log; None for other ids.

    A key that a client made has as many digits as an offset id of IPv4. In place of the
    port it has the number of the client's process, so it is no port.
    """
    try:
        packed = bytes.fromhex(message_id)
    except ValueError:
        return None
    port = int.from_bytes(packed[-12:-8])
    if len(packed) not in (16, 28) or not 0 < port <= MAX_PORT:
        return None
    return host_text(packed[:-8]), int.from_bytes(packed[-8:])


def _unknown_id_error(message_id: str, topic: str | None) -> RmqError:
    """Return the error for an id that no message has, and that is no offset id."""
    if topic:
        what = f"no message of {topic} has the id {message_id}"
        return ExplainedError(
            Failure(what, "it has expired, or is in another topic"),
            is_refusal=True,
        )
    what = f"{message_id} is not an id of the broker"
    why = "an id or a key of a client can be found only in its topic"
    return ExplainedError(Failure(what, why, "pass the topic: -t TOPIC"))


def _find_moved(
    admin: AdminClient, message_id: str, topic: str, fields: dict[str, object]
) -> StoredMessage | None:
    """Return the message with an id at the brokers of its topic.

    The id and the record both have the address at which the broker stored the message.
    """
    for host in admin.topic_brokers(topic):
        code = RequestCode.VIEW_MESSAGE_BY_ID
        answer = admin.try_request(host.address, code, fields)
        if answer.code != ResponseCode.SUCCESS:
            continue
        record = decode_stored(answer.body)[0]
        if record.offset_msg_id == message_id.upper():
            return record
    return None


def find_by_key(
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
    """Return the messages with a key from all brokers of a topic."""
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
    for host in admin.topic_brokers(topic):
        answer = admin.try_request(host.address, RequestCode.QUERY_MESSAGE, fields)
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
    """Let a client of a group consume a message; return the result."""
    fields = {
        "consumerGroup": group,
        "clientId": client,
        "topic": record.topic,
        "msgId": record.offset_msg_id,
    }
    address = host_text(record.store_host)
    result = admin.request_json(address, RequestCode.CONSUME_MESSAGE_DIRECTLY, fields)
    assert isinstance(result, dict), client
    return result


def _messages(admin: AdminClient, found: list[dict[str, Any]]) -> Output:
    """Return one message with the groups that consumed it, or several as a table."""
    if len(found) == 1:
        message = found[0]
        message["consumers"] = consumed_by_group(admin, message)
        return message
    return message_table(found)


def message_table(found: list[dict[str, Any]]) -> Table:
    """Return a row for each described message."""
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


def consumed_by_group(admin: AdminClient, message: dict[str, Any]) -> dict[str, str]:
    """Return for each group of the topic whether it has consumed the message."""
    tracks = {}
    for group in groups_of(admin, message["topic"]):
        for queue, each in queue_progress(admin, group, message["topic"]):
            if queue["queueId"] == message["queueId"]:
                is_past = each["consumerOffset"] > message["queueOffset"]
                tracks[group] = "CONSUMED" if is_past else "NOT_CONSUME_YET"
    return tracks


@register_command("queryMsgByKey")
@topic_option
@click.option("-k", "--msgKey", "key", required=True)
@click.option("-b", "--beginTimestamp", "begin", default="0")
@click.option("-e", "--endTimestamp", "end", default=str(LAST_MS))
@click.option("-c", "--maxNum", "count", type=click.IntRange(1), default=64)
@click.option("-p", "--keyType", "key_type", type=click.Choice(["K", "T"]))
@click.option("-l", "--lastKey", "last_key", help="Ignored.")
def query_msg_by_key(
    admin: AdminClient,
    topic: str,
    key: str,
    begin: str,
    end: str,
    count: int,
    key_type: str | None,
    last_key: str | None,
) -> Output:
    begin_ms, end_ms = parse_time_ms(begin), parse_time_ms(end)
    records = find_by_key(
        admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count,
        key_type=key_type,
    )  # fmt: skip
    return message_table([describe_message(record) for record in records])


@register_command("queryMsgByUniqueKey")
@click.option("-i", "--msgId", "key", required=True)
@topic_option
@click.option("-g", "--consumerGroup", "group")
@click.option(
    "-d", "--clientId", "client", help="Let this client consume the message. Needs -g."
)
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
) -> Output:
    begin_ms, end_ms = parse_time_ms(begin), parse_time_ms(end)
    records = find_by_key(
        admin, topic, key, unique=True, begin_ms=begin_ms, end_ms=end_ms
    )
    if not records:
        raise AnswerRefused(
            admin.name_servers[0], ResponseCode.NO_MESSAGE, f"no message {key}"
        )
    if group and client:
        return consume_directly(admin, group, client, records[0])
    found = [describe_message(record) for record in records]
    return message_table(found) if every else _messages(admin, found[:1])


@register_command("queryMsgByOffset")
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
) -> Output:
    for host in admin.topic_brokers(route_topic or topic):
        if host.name == broker:
            queue = Queue(broker, host.address, queue_id)
            body, _following, code = admin.pull(topic, queue, offset, count=1)
            if code != ResponseCode.SUCCESS:
                raise _no_message(admin, topic, queue, offset)
            return describe_message(decode_stored(body)[0], body_format)
    raise click.UsageError(f"broker {broker} has no topic {topic}")


def _no_message(
    admin: AdminClient, topic: str, queue: Queue, offset: int
) -> ExplainedError:
    """Return the error for an offset without a message; it shows the offsets that have
    messages.
    """
    low, high = (
        admin.offset(code, topic, queue)
        for code in (RequestCode.GET_MIN_OFFSET, RequestCode.GET_MAX_OFFSET)
    )
    have = f"it has {low} to {high - 1}" if high > low else "it has no messages"
    what = f"queue {queue.queue_id} of {topic} has no message at offset {offset}"
    return ExplainedError(Failure(what, have), is_refusal=True)


TRACE_PLACES: Final = {
    "Pub": (1, 3, 4, 5),
    "SubBefore": (1, 3, 99, 5),
    "SubAfter": (7, 8, 99, 2),
    "EndTransaction": (1, 3, 4, 5),
    "Recall": (1, 3, 4, 5),
}


"""Positions of time, group, topic and id in a line of each type; 99: absent."""


@register_command("queryMsgTraceById")
@click.option("-i", "--msgId", "key", required=True)
@click.option("-t", "--traceTopic", "topic", default="RMQ_SYS_TRACE_TOPIC")
@click.option("-b", "--beginTimestamp", "begin", default="0")
@click.option("-e", "--endTimestamp", "end", default=str(LAST_MS))
@click.option("-c", "--maxNum", "count", type=click.IntRange(1), default=64)
def query_msg_trace_by_id(
    admin: AdminClient, key: str, topic: str, begin: str, end: str, count: int
) -> Output:
    begin_ms, end_ms = parse_time_ms(begin), parse_time_ms(end)
    records = find_by_key(
        admin, topic, key, begin_ms=begin_ms, end_ms=end_ms, count=count
    )
    rows = []
    for record in records:
        for line in plain_body(record).decode("utf-8", "replace").split("\x02"):
            parts = line.split("\x01")
            places = TRACE_PLACES.get(parts[0], ())
            row = [parts[at] if at < len(parts) else "" for at in places]
            if key in row[3:]:
                rows.append((parts[0], *row))
    return Table(("traceType", "timestamp", "group", "topic", "id"), rows)
