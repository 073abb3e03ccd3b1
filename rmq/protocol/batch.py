"""Batches: several messages in the body of one request (320, or the flag `batch`).

Byte layout of the items, one after another, big-endian:

    i32 size of the item · i32 magic (0) · i32 CRC (0) · i32 flag
    i32 n · n bytes body · i16 m · m bytes properties
"""

import struct
from typing import Final, NamedTuple

from rmq.core.errors import RequestRejected
from rmq.protocol.codes import ResponseCode
from rmq.protocol.properties import MAX_PROPERTIES_SIZE

_ITEM_HEAD: Final = struct.Struct(">iiiii")
_ITEM_TAIL: Final = struct.Struct(">h")

MAX_ITEMS: Final = 200_000
"""Maximum number of messages of a batch: their ids, up to 57 bytes each, fit into the
answer's header.
"""


MAX_INNER_ITEMS: Final = 32_767
"""Maximum number of messages of an inner batch, which is stored as one record: its
queue entry counts them in 16 bits.
"""


class BatchItem(NamedTuple):
    """One message of a batch; the batch has topic, queue, flags and host."""

    flag: int
    body: bytes
    properties_text: str


def decode_some(body: bytes, first: int, count: int) -> list[BatchItem]:
    """Decode `count` items of a batch body from item number `first` on.

    RequestRejected if a length is wrong.
    """
    items: list[BatchItem] = []
    position = 0
    for number in range(first + count):
        if position >= len(body):
            break
        if number < first:
            position += _size_at(body, position)
            continue
        size, item = _decode_item(body, position)
        items.append(item)
        position += size
    return items


def _size_at(body: bytes, position: int) -> int:
    """Return the size of the item at `position`."""
    if position + _ITEM_HEAD.size > len(body):
        raise _illegal_batch(position, "a truncated head")
    size: int = _ITEM_HEAD.unpack_from(body, position)[0]
    if size < _ITEM_HEAD.size:
        raise _illegal_batch(position, f"item of {size} bytes")
    return size


def decode_batch(body: bytes) -> list[BatchItem]:
    """Split a batch body into its items.

    RequestRejected if a length is wrong, or if there are more than MAX_ITEMS.
    """
    items: list[BatchItem] = []
    position = 0
    while position < len(body):
        size, item = _decode_item(body, position)
        assert size > 0, "an item without a size would never end"
        if len(items) == MAX_ITEMS:
            raise RequestRejected(
                ResponseCode.MESSAGE_ILLEGAL,
                f"the batch has more than {MAX_ITEMS} messages: send smaller batches",
            )
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
            raise _illegal_batch(position, f"body of {body_size} bytes")
        (properties_size,) = _ITEM_TAIL.unpack_from(data, body_end)
    except struct.error as error:
        raise _illegal_batch(position, "the item is truncated") from error
    properties_start = body_end + _ITEM_TAIL.size
    end = properties_start + properties_size
    if properties_size < 0 or end > len(data) or size != end - position:
        raise _illegal_batch(position, f"size {size} does not match its parts")
    try:
        properties_text = data[properties_start:end].decode()
    except UnicodeDecodeError as error:
        raise _illegal_batch(position, "its properties are not UTF-8") from error
    return size, BatchItem(flag, data[body_start:body_end], properties_text)


def _illegal_batch(position: int, reason: str) -> RequestRejected:
    remark = f"the batch item at byte {position} is illegal: {reason}"
    return RequestRejected(ResponseCode.MESSAGE_ILLEGAL, remark)
