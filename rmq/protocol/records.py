"""Records of the log: the stored form of a message, also in answers to pulls.

Known in Java as `MessageDecoder`.
`rmq/_fastpath/log/layout.pyx` has the byte layout and `decode.pyx` the rules. A message
id is the host of a broker and the i64 offset of a record in its log. The id is written
in upper-case hexadecimal: 32 or 56 characters.
"""

import struct
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Final

import msgspec

from rmq._fastpath.log.decode import RecordView, decode_record
from rmq._fastpath.log.layout import RecordMagic
from rmq.core.errors import LocalProtocolError, RemoteProtocolError
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.flags import COMPRESSED
from rmq.protocol.message import Message
from rmq.protocol.properties import DLQ_ORIGIN_TOPIC, RETRY_TOPIC, decode_properties

if TYPE_CHECKING:
    from rmq._fastpath.log.mapped_file import MappedFile

__all__ = [
    "RecordView",
    "StoredMessage",
    "decode_each",
    "decode_or_error",
    "decode_stored",
    "decode_stored_at",
    "encode_stored",
    "offset_message_id",
    "offset_of_message_id",
    "plain_body",
]

_OFFSET: Final = struct.Struct(">q")
_RECORD_HEAD: Final = struct.Struct(">iIiiiqqiq")
_RECORD_TAIL: Final = struct.Struct(">iqi")
_V1_TOPIC: Final = struct.Struct(">B")
_PROPERTIES_SIZE: Final = struct.Struct(">h")
_MAX_V1_TOPIC: Final = 255


def offset_message_id(store_host: bytes, physical_offset: PhysicalOffset) -> str:
    """Return the message id of a record, from broker address and physical offset."""
    assert len(store_host) in (8, 20), f"a host of {len(store_host)} bytes"
    assert physical_offset >= 0, f"offset {physical_offset}"
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def offset_of_message_id(message_id: str) -> PhysicalOffset | None:
    """Return the physical offset in a message id; None if it is not of this form."""
    if len(message_id) not in (32, 56):
        return None
    try:
        packed = bytes.fromhex(message_id)
    except ValueError:
        return None
    (offset,) = _OFFSET.unpack_from(packed, len(packed) - _OFFSET.size)
    return PhysicalOffset(offset)


class StoredMessage(msgspec.Struct, kw_only=True, dict=True):
    """The fields of a record; answers to pull, query and view contain records."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    store_timestamp: int
    store_host: bytes
    reconsume_times: int
    prepared_transaction_offset: int
    body: bytes
    topic: str
    properties_text: str

    @cached_property
    def properties(self) -> Mapping[str, str]:
        """The properties, decoded at the first call."""
        return decode_properties(self.properties_text)

    @property
    def offset_msg_id(self) -> str:
        """The id by which a broker finds this record."""
        return offset_message_id(self.store_host, self.physical_offset)

    @property
    def origin_topic(self) -> str:
        """The original topic of a message in a retry or dead letter topic."""
        properties = self.properties
        return properties.get(DLQ_ORIGIN_TOPIC) or properties.get(RETRY_TOPIC, "")

    def to_message(self) -> Message:
        """Return a message with the same content, to store it again."""
        return Message(
            self.topic,
            self.queue_id,
            self.body,
            self.flag,
            self.sys_flag,
            self.born_timestamp,
            self.born_host,
            self.reconsume_times,
            self.prepared_transaction_offset,
            dict(self.properties),
            self.properties_text,
        )


def plain_body(record: StoredMessage) -> bytes:
    """Return the decompressed body; the stored body if the decompression fails."""
    if not record.sys_flag & COMPRESSED:
        return record.body
    # imported on use: brokers never look into bodies
    from rmq.protocol.compression import open_body

    return open_body(record.body, record.sys_flag)


def decode_stored(data: bytes) -> list[StoredMessage]:
    """Read the records in the answer to a pull, query or view, one after another.

    For clients and tools; CRCs are not checked. An incomplete record raises
    `RemoteProtocolError` with the position.
    """
    records = []
    position = 0
    while position < len(data):
        record = decode_stored_at(data, position)
        assert record.size > 0, "a record without a size would never end"
        records.append(record)
        position += record.size
    return records


def decode_stored_at(data: "bytes | MappedFile", position: int) -> StoredMessage:
    """Read one of several records; its CRC is not checked."""
    try:
        record = decode_record(data, position, check_crc=False)
        return StoredMessage(
            size=record.size,
            magic=record.magic,
            body_crc=record.body_crc,
            queue_id=record.queue_id,
            flag=record.flag,
            queue_offset=record.queue_offset,
            physical_offset=record.physical_offset,
            sys_flag=record.sys_flag,
            born_timestamp=record.born_ms,
            born_host=record.born_host,
            store_timestamp=record.store_ms,
            store_host=record.store_host,
            reconsume_times=record.reconsume_times,
            prepared_transaction_offset=record.prepared_offset,
            body=record.body,
            topic=record.topic,
            properties_text=record.properties.decode(),
        )
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from error


def decode_or_error(
    data: bytes, position: int
) -> tuple[StoredMessage, RemoteProtocolError | None]:
    """Read one of several records, for a reader that skips records with wrong bytes.

    A record with wrong bytes is returned with the error, and has only the numbers of
    its head. It ends after its size, or at the end of the data. If there are fewer
    bytes than a head has, the error is raised.
    """
    try:
        return decode_stored_at(data, position), None
    except RemoteProtocolError as error:
        left = len(data) - position
        if left < _RECORD_HEAD.size:
            raise
        size, magic, crc, queue_id, flag, queue_offset, physical_offset, *rest = (
            _RECORD_HEAD.unpack_from(data, position)
        )
        head = StoredMessage(
            size=size if _RECORD_HEAD.size <= size <= left else left,
            magic=magic,
            body_crc=crc,
            queue_id=queue_id,
            flag=flag,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            sys_flag=rest[0],
            born_timestamp=rest[1],
            born_host=b"",
            store_timestamp=0,
            store_host=b"",
            reconsume_times=0,
            prepared_transaction_offset=0,
            body=b"",
            topic="",
            properties_text="",
        )
        return head, error


def decode_each(
    data: bytes,
) -> Iterator[tuple[StoredMessage, RemoteProtocolError | None]]:
    """Yield records one after another, each as `decode_or_error` reads it."""
    position = 0
    while position < len(data):
        record, error = decode_or_error(data, position)
        yield record, error
        position += record.size


def encode_stored(record: StoredMessage) -> bytes:
    """Encode a record in version 1, for a client, and compute its size again."""
    topic, properties = record.topic.encode(), record.properties_text.encode()
    if len(topic) > _MAX_V1_TOPIC:
        raise LocalProtocolError(
            f"{record.topic} is too long for a record of version 1"
        )
    assert len(record.born_host) in (8, 20), f"a host of {len(record.born_host)} bytes"
    parts = [
        record.born_host,
        _OFFSET.pack(record.store_timestamp),
        record.store_host,
        _RECORD_TAIL.pack(
            record.reconsume_times, record.prepared_transaction_offset, len(record.body)
        ),
        record.body,
        _V1_TOPIC.pack(len(topic)),
        topic,
        _PROPERTIES_SIZE.pack(len(properties)),
        properties,
    ]
    head = _RECORD_HEAD.pack(
        _RECORD_HEAD.size + sum(map(len, parts)),
        RecordMagic.MAGIC_V1,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_timestamp,
    )
    return b"".join([head, *parts])
