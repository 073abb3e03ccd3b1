"""Messages: on their way into the store, as batch items, and as stored records.

A batch (request 320, or flag `batch`) carries its items one after another, big-endian:

    i32 size of the item · i32 magic (0) · i32 CRC (0) · i32 flag
    i32 n · n bytes body · i16 m · m bytes properties

A host is stored as 4 or 16 bytes of address and an i32 port. A message id is a host and
the i64 offset in the log in upper-case hexadecimal: 32 or 56 characters.
"""

import socket
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import msgspec

from rmq._fastpath import MappedFile, decode_record
from rmq.errors import LocalProtocolError, RemoteProtocolError, RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import (
    MAX_PROPERTIES_SIZE,
    decode_properties,
    encode_properties,
)

_ITEM_HEAD: Final = struct.Struct(">iiiii")
_ITEM_TAIL: Final = struct.Struct(">h")
_PORT: Final = struct.Struct(">i")
_OFFSET: Final = struct.Struct(">q")


class Message(msgspec.Struct, gc=False):
    """A message on its way into the store.

    Read `properties` freely, but change them only through `set_property` and
    `remove_property`: these drop `properties_text`, the form to be stored. `born_host`
    is packed as in a record; who builds a message from 20 bytes sets the IPv6 bit.
    """

    topic: str
    queue_id: int
    body: bytes
    flag: int
    sys_flag: int
    born_timestamp: int
    born_host: bytes
    reconsume_times: int = 0
    prepared_transaction_offset: int = 0
    properties: dict[str, str] = msgspec.field(default_factory=dict)
    properties_text: str | None = None

    def set_property(self, name: str, value: str) -> None:
        """Add or replace a property."""
        assert name, "a property without a name vanishes"
        self.properties[name] = value
        self.properties_text = None

    def remove_property(self, name: str) -> str | None:
        """Take a property away; return the value it had."""
        value = self.properties.pop(name, None)
        if value is not None:
            self.properties_text = None
        return value

    def stored_properties(self) -> str:
        """Return the text to store: as received if nobody changed a property."""
        if self.properties_text is None:
            self.properties_text = encode_properties(self.properties)
        return self.properties_text


class BatchItem(NamedTuple):
    """One message of a batch; topic, queue, flags and host are those of the batch."""

    flag: int
    body: bytes
    properties_text: str


def decode_batch(body: bytes) -> list[BatchItem]:
    """Cut a batch body into its items; lengths that lie reject the request."""
    items = []
    position = 0
    while position < len(body):
        size, item = _decode_item(body, position)
        assert size > 0, "an item that takes no room would be read for ever"
        items.append(item)
        position += size
    return items


def encode_batch(items: list[BatchItem]) -> bytes:
    """Write a batch body."""
    parts = []
    for flag, body, properties_text in items:
        properties = properties_text.encode()
        assert len(properties) <= MAX_PROPERTIES_SIZE
        size = _ITEM_HEAD.size + len(body) + _ITEM_TAIL.size + len(properties)
        parts += [
            _ITEM_HEAD.pack(size, 0, 0, flag, len(body)),
            body,
            _ITEM_TAIL.pack(len(properties)),
            properties,
        ]
    return b"".join(parts)


def _decode_item(data: bytes, position: int) -> tuple[int, BatchItem]:
    """Return the size of the item at `position`, and the item."""
    try:
        size, _magic, _crc, flag, body_size = _ITEM_HEAD.unpack_from(data, position)
        body_start = position + _ITEM_HEAD.size
        body_end = body_start + body_size
        if body_size < 0:
            raise _illegal(position, f"body of {body_size} bytes")
        (properties_size,) = _ITEM_TAIL.unpack_from(data, body_end)
    except struct.error as error:
        raise _illegal(position, "it is cut short") from error
    properties_start = body_end + _ITEM_TAIL.size
    end = properties_start + properties_size
    if properties_size < 0 or end > len(data) or size != end - position:
        raise _illegal(position, f"size {size} does not match its parts")
    try:
        properties_text = data[properties_start:end].decode()
    except UnicodeDecodeError as error:
        raise _illegal(position, "its properties are not UTF-8") from error
    return size, BatchItem(flag, data[body_start:body_end], properties_text)


def _illegal(position: int, reason: str) -> RequestRejected:
    remark = f"the batch item at byte {position} is illegal: {reason}"
    return RequestRejected(ResponseCode.MESSAGE_ILLEGAL, remark)


def host_bytes(host: str, port: int) -> bytes:
    """Pack an IP address and a port as a record stores them: 8 or 20 bytes."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.inet_pton(family, host.partition("%")[0]) + _PORT.pack(port)
    except (OSError, struct.error) as error:
        raise LocalProtocolError(f"{host!r} port {port} is no address") from error


def host_text(packed: bytes) -> str:
    """Render a packed host as `ip:port`; the port follows the last colon."""
    if len(packed) not in (8, 20):
        raise LocalProtocolError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    family = socket.AF_INET if len(packed) == 8 else socket.AF_INET6
    (port,) = _PORT.unpack_from(packed, len(packed) - _PORT.size)
    return f"{socket.inet_ntop(family, packed[: -_PORT.size])}:{port}"


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """Return the id by which the broker finds a stored message."""
    assert len(store_host) in (8, 20), f"a host of {len(store_host)} bytes"
    assert physical_offset >= 0, f"offset {physical_offset}"
    return (store_host + _OFFSET.pack(physical_offset)).hex().upper()


def offset_of_message_id(message_id: str) -> int | None:
    """Return the offset that an id of the broker names; None if it is no such id."""
    if len(message_id) not in (32, 56):
        return None
    try:
        packed = bytes.fromhex(message_id)
    except ValueError:
        return None
    (offset,) = _OFFSET.unpack_from(packed, len(packed) - _OFFSET.size)
    return int(offset)


@dataclass(slots=True, kw_only=True)
class StoredMessage:
    """A record of the log as its fields; what pull, query and view answers carry."""

    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: int
    physical_offset: int
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
    _properties: Mapping[str, str] | None = field(
        init=False, default=None, repr=False, compare=False
    )

    @property
    def properties(self) -> Mapping[str, str]:
        """The properties, decoded at the first call."""
        if self._properties is None:
            self._properties = decode_properties(self.properties_text)
        return self._properties

    @property
    def offset_msg_id(self) -> str:
        """The id by which a broker finds this record."""
        return offset_message_id(self.store_host, self.physical_offset)

    def again(self) -> Message:
        """Return a message with the same content, to be stored once more."""
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


MAGIC_V1: Final = 0xDAA320A7
MAGIC_V2: Final = 0xDAA320AB

MAX_V1_TOPIC: Final = 255

_RECORD_HEAD: Final = struct.Struct(">iIiiiqqiq")
_RECORD_TAIL: Final = struct.Struct(">iqi")
_V1_TOPIC: Final = struct.Struct(">B")


def decode_stored(data: bytes) -> list[StoredMessage]:
    """Read the records that a pull, query or view answer holds, one after another.

    For clients and tools; CRCs are not checked. A body that is not whole records raises
    `RemoteProtocolError` with the position.
    """
    records = []
    position = 0
    while position < len(data):
        record = decode_stored_at(data, position)
        assert record.size > 0, "a record that takes no room would be read for ever"
        records.append(record)
        position += record.size
    return records


def decode_stored_at(data: bytes | MappedFile, position: int) -> StoredMessage:
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


def encode_stored(record: StoredMessage) -> bytes:
    """Write a record in its first form, for a client; the size is computed anew."""
    topic, properties = record.topic.encode(), record.properties_text.encode()
    if len(topic) > MAX_V1_TOPIC:
        raise LocalProtocolError(f"{record.topic} has no room in a record of form 1")
    assert len(record.born_host) in (8, 20), f"a host of {len(record.born_host)} bytes"
    parts = [
        record.born_host,
        _OFFSET.pack(record.store_timestamp),
        record.store_host,
        _RECORD_TAIL.pack(
            record.reconsume_times,
            record.prepared_transaction_offset,
            len(record.body),
        ),
        record.body,
        _V1_TOPIC.pack(len(topic)),
        topic,
        _ITEM_TAIL.pack(len(properties)),
        properties,
    ]
    head = _RECORD_HEAD.pack(
        _RECORD_HEAD.size + sum(map(len, parts)),
        MAGIC_V1,
        record.body_crc,
        record.queue_id,
        record.flag,
        record.queue_offset,
        record.physical_offset,
        record.sys_flag,
        record.born_timestamp,
    )
    return b"".join([head, *parts])
