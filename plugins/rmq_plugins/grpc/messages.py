"""Messages of the service from records, and the properties of records from messages."""

import hashlib
import zlib
from typing import Any, Final

from rmq.plugin import RmqError
from rmq.protocol import properties as names
from rmq.protocol.flags import COMPRESSED, TRANSACTION_PREPARED
from rmq.protocol.hosts import host_text
from rmq.protocol.properties import encode_properties
from rmq.protocol.records import StoredMessage
from rmq_plugins.grpc import schema
from rmq_plugins.grpc.handles import Receipt
from rmq_plugins.grpc.statuses import Code, Refused

NORMAL, FIFO, DELAY, TRANSACTION, LITE, PRIORITY = range(1, 7)
IDENTITY, GZIP = 1, 2
MAX_BODY: Final = 4 << 20
"""Maximum bytes of the body of a call, also with a larger `maxMessageSize`."""

MAX_PROPERTIES: Final = 128
MAX_PROPERTIES_SIZE: Final = 16 << 10
MAX_GROUP: Final = 64
MAX_DELAY_MS: Final = 86_400_000
MAX_RECOVERY_S: Final = 3_600
CRC32, MD5 = 1, 2
MD5_LANGUAGES: Final = ("CPP", "HTTP", "")
"""Languages whose SDKs compare MD5; others compare CRC-32."""

PADDED_LANGUAGES: Final = ("PYTHON", "RUST")
"""Languages whose SDKs compare eight digits of CRC-32; others omit leading zeros."""

RESERVED: Final = frozenset(
    value
    for name, value in vars(names).items()
    if name.isupper() and isinstance(value, str)
)
"""Names of properties that no user sets."""

_MARKS: Final = ("delivery_timestamp", "lite_topic", "message_group", "priority")
"""Fields of messages of one type only."""


def time_of(ms: int) -> Any:
    """Return a time, or a duration, of milliseconds."""
    return schema.Time(seconds=ms // 1000, nanos=ms % 1000 * 1_000_000)


def ms_of(time: Any) -> int:
    """Return the milliseconds of a time or a duration."""
    return int(time.seconds) * 1000 + int(time.nanos) // 1_000_000


def type_of(message: Any) -> int:
    """Return the type of a sent message; Refused if its fields contradict it."""
    system = message.system_properties
    kind = int(system.message_type)
    found = {mark for mark in _MARKS if system.HasField(mark)}
    allowed = {
        NORMAL: set(),
        FIFO: {"message_group"},
        DELAY: {"delivery_timestamp"},
        TRANSACTION: set(),
        LITE: {"lite_topic"},
        PRIORITY: {"priority"},
    }.get(kind)
    if allowed is not None and found != allowed:
        raise Refused(
            Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
            f"a message of type {kind} with {', '.join(sorted(found)) or 'no mark'}",
        )
    return kind


def check_message(message: Any, now_ms: int, largest_body: int) -> None:
    """Refuse a message whose fields no broker stores."""
    system = message.system_properties
    if not message.body:
        raise Refused(Code.MESSAGE_BODY_EMPTY, "the message has no body")
    if len(message.body) > largest_body:
        raise Refused(
            Code.MESSAGE_BODY_TOO_LARGE, f"the body has more than {largest_body} bytes"
        )
    if not system.message_id:
        raise Refused(Code.ILLEGAL_MESSAGE_ID, "the message has no id")
    tag = system.tag
    if tag and (not tag.strip() or "|" in tag or not tag.isprintable()):
        raise Refused(
            Code.ILLEGAL_MESSAGE_TAG, "a tag must not have | or control characters"
        )
    if len(system.message_group) > MAX_GROUP:
        raise Refused(
            Code.ILLEGAL_MESSAGE_GROUP,
            f"the message group has more than {MAX_GROUP} characters",
        )
    due_ms = ms_of(system.delivery_timestamp)
    if due_ms - now_ms > MAX_DELAY_MS:
        raise Refused(
            Code.ILLEGAL_DELIVERY_TIME, "the delivery time is more than a day ahead"
        )
    if system.orphaned_transaction_recovery_duration.seconds > MAX_RECOVERY_S:
        raise Refused(Code.BAD_REQUEST, "the recovery duration is more than an hour")
    _check_properties(message.user_properties)


def _check_properties(properties: Any) -> None:
    size = sum(len(each.key) + len(each.value) for each in properties)
    if len(properties) > MAX_PROPERTIES or size > MAX_PROPERTIES_SIZE:
        raise Refused(
            Code.MESSAGE_PROPERTIES_TOO_LARGE,
            f"over {MAX_PROPERTIES} properties or {MAX_PROPERTIES_SIZE} characters",
        )
    for each in properties:
        if each.key in RESERVED or not each.key:
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                f"{each.key!r} is a reserved property",
            )
        if not (each.key + each.value).isprintable():
            raise Refused(
                Code.ILLEGAL_MESSAGE_PROPERTY_KEY,
                "a property must not have control characters",
            )


def properties_of(message: Any, kind: int) -> str:
    """Return the text of a record's properties for a sent message."""
    system = message.system_properties
    found = {each.key: each.value for each in message.user_properties}
    found[names.UNIQ_KEY] = system.message_id
    if system.tag:
        found[names.TAGS] = system.tag
    if system.keys:
        found[names.KEYS] = " ".join(system.keys)
    if kind == TRANSACTION:
        found[names.TRAN_MSG] = "true"
        seconds = system.orphaned_transaction_recovery_duration.seconds
        if seconds:
            found[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
    if system.message_group:
        found[names.SHARDING_KEY] = system.message_group
    if system.HasField("delivery_timestamp"):
        found[names.TIMER_DELIVER_MS] = str(ms_of(system.delivery_timestamp))
    if system.HasField("priority"):
        found[names.PRIORITY] = str(system.priority)
    if system.lite_topic:
        found[names.LITE_TOPIC] = system.lite_topic
    if system.trace_context:
        found[names.TRACE_CONTEXT] = system.trace_context
    if system.born_host:
        found[names.BORN_HOST] = system.born_host
    found[names.PRODUCER_GROUP] = message.topic.name
    try:
        return encode_properties(found)
    except RmqError as error:
        raise Refused(Code.ILLEGAL_MESSAGE_PROPERTY_KEY, str(error)) from None


def flags_of(message: Any, kind: int) -> int:
    """Return the sysFlag of a record for a sent message."""
    flags = COMPRESSED if message.system_properties.body_encoding == GZIP else 0
    return flags | (TRANSACTION_PREPARED if kind == TRANSACTION else 0)


def message_of(
    record: StoredMessage, topic: str, language: str, *, attempt: int = 1
) -> Any:
    """Return the message for a record, without its receipt handle."""
    properties = record.properties
    message = schema.Message(body=record.body)
    message.topic.name = topic
    for key, value in properties.items():
        if key not in RESERVED:
            message.user_properties.add(key=key, value=value)
    system = message.system_properties
    if names.TAGS in properties:
        system.tag = properties[names.TAGS]
    system.keys.extend(properties.get(names.KEYS, "").split())
    system.message_id = properties.get(names.UNIQ_KEY) or record.offset_msg_id
    system.body_digest.CopyFrom(_digest(record.body, language))
    system.body_encoding = GZIP if record.sys_flag & COMPRESSED else IDENTITY
    system.message_type = _kind_of(properties)
    system.born_timestamp.CopyFrom(time_of(record.born_timestamp))
    system.born_host = properties.get(names.BORN_HOST) or host_text(record.born_host)
    system.store_timestamp.CopyFrom(time_of(record.store_timestamp))
    system.store_host = host_text(record.store_host)
    due = properties.get(names.TIMER_DELIVER_MS, "")
    if due.isdecimal():
        system.delivery_timestamp.CopyFrom(time_of(int(due)))
    system.queue_id = record.queue_id
    system.queue_offset = record.queue_offset
    system.delivery_attempt = attempt
    if names.SHARDING_KEY in properties:
        system.message_group = properties[names.SHARDING_KEY]
    if names.LITE_TOPIC in properties:
        system.lite_topic = properties[names.LITE_TOPIC]
    if names.TRACE_CONTEXT in properties:
        system.trace_context = properties[names.TRACE_CONTEXT]
    return message


def encode_received(
    record: StoredMessage, topic: str, language: str, *, receipt: Receipt, earlier: int
) -> bytes:
    """Return a record as a message for a receive; `earlier` is the number of earlier
    deliveries.

    `message_encoder.pyx` encodes plain records to the same bytes.
    """
    message = message_of(record, topic, language, attempt=earlier + 1)
    message.system_properties.receipt_handle = receipt.text
    message.system_properties.invisible_duration.CopyFrom(
        time_of(receipt.handle.invisible_ms)
    )
    return bytes(schema.ReceiveMessageResponse(message=message).SerializeToString())


def _kind_of(properties: Any) -> int:
    if names.TRAN_MSG in properties:
        return TRANSACTION
    if names.LITE_TOPIC in properties:
        return LITE
    if names.SHARDING_KEY in properties:
        return FIFO
    if names.TIMER_DELIVER_MS in properties:
        return DELAY
    return NORMAL


def _digest(body: bytes, language: str) -> Any:
    """Return the digest of a body, in the form that SDKs of this language compare."""
    language = language.upper()
    if language in MD5_LANGUAGES:
        text = hashlib.md5(body, usedforsecurity=False).hexdigest().upper()
        return schema.Digest(type=MD5, checksum=text)
    width = "08" if language in PADDED_LANGUAGES else ""
    return schema.Digest(type=CRC32, checksum=f"{zlib.crc32(body):{width}X}")
