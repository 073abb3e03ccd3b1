"""Tombstones: records that replace records whose bytes no broker has.

An operator has accepted the loss.  A tombstone has topic, queue, queue offset and size
of the lost record, as its queue entry named them, and an empty or zero body. So the log
is complete again, no queue offset is used twice, and no copy of the log finds a gap in
a queue. The prepared offset of a tombstone is `LOST_MARK`, and it has the property
RMQ_LOST=1 if there is room. The tombstone of an inner batch has the number of messages
before it, if there is room. rmq gives it a filler entry, and no reader gets it; Java's
brokers deliver an empty message with that property.

A range without a known entry gets records without a queue: they look like rolled back
messages. No I/O.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from rmq._fastpath.log.layout import RecordFlag, RecordLayout, RecordMagic
from rmq.protocol.flags import INNER_BATCH
from rmq.protocol.properties import INNER_NUM

LOST_MARK: Final = 0x524D514C4F535401
"""The prepared offset of a tombstone: "RMQLOST" and 1."""

LOST_BYTES: Final = LOST_MARK.to_bytes(8, "big")
MARK_AT: Final = 76
"""Position of the prepared offset in a record with IPv4 hosts."""

PROPERTIES: Final = b"RMQ_LOST\x011\x02"
NO_TOPIC: Final = b"L"
MOST_BYTES: Final = 1 << 20
"""Maximum size of a record without a queue; a longer range gets several records."""

BLANK_SIZE: Final = int(RecordLayout.BLANK_SIZE)
_LEAST: Final = int(RecordLayout.FIXED_SIZE_V1) + len(NO_TOPIC)
_HEAD: Final = struct.Struct(">IIIiiqqiqIIqIIiqi")
_BLANK: Final = struct.Struct(">II")


class Lost(NamedTuple):
    """A message whose bytes are lost."""

    offset: int
    """The offset of its record in the log; -1 if only its queue offset is known."""

    size: int
    topic: str
    queue_id: int
    queue_offset: int
    messages: int = 1
    """More than one for an inner batch."""


def least_size(topic: str) -> int:
    """Return the smallest size of a tombstone in a topic."""
    name = topic.encode()
    is_v1 = len(name) <= RecordLayout.V1_TOPIC_LIMIT
    fixed = RecordLayout.FIXED_SIZE_V1 if is_v1 else RecordLayout.FIXED_SIZE_V2
    return int(fixed) + len(name)


def encode_tombstone(
    offset: int, size: int, store_ms: int, lost: Lost | None = None
) -> bytes:
    """Return the record of exactly `size` bytes for an offset of the log."""
    topic = NO_TOPIC if lost is None else lost.topic.encode()
    is_v1 = len(topic) <= RecordLayout.V1_TOPIC_LIMIT
    length = struct.pack(">B" if is_v1 else ">H", len(topic))
    room = size - RecordLayout.FIXED_SIZE_V1 - len(topic) - len(length) + 1
    assert room >= 0, (offset, size, lost)
    flags = int(RecordFlag.TRANSACTION_ROLLBACK) if lost is None else 0
    properties = b""
    if lost is not None and lost.messages > 1:
        count = f"{INNER_NUM}\x01{lost.messages}\x02".encode()
        if room >= len(count):
            flags, properties = INNER_BATCH, count
    if room >= len(properties + PROPERTIES):
        properties += PROPERTIES
    body = bytes(room - len(properties))
    head = _HEAD.pack(
        size,
        RecordMagic.MAGIC_V1 if is_v1 else RecordMagic.MAGIC_V2,
        zlib.crc32(body) & 0x7FFF_FFFF,
        0 if lost is None else lost.queue_id,
        0,
        0 if lost is None else lost.queue_offset,
        offset,
        flags,
        store_ms,
        0,
        0,
        store_ms,
        0,
        0,
        0,
        LOST_MARK,
        len(body),
    )
    end = struct.pack(">H", len(properties)) + properties
    return head + body + length + topic + end


def is_tombstone(record: bytes) -> bool:
    """Return whether a record is the tombstone of a lost record."""
    return record.startswith(LOST_BYTES, MARK_AT)


def encode_blank(size: int) -> bytes:
    """Return the record that fills the last `size` bytes of a file."""
    return _BLANK.pack(size, RecordMagic.MAGIC_BLANK).ljust(size, b"\0")


def fill_range(
    begin: int, end: int, file_size: int, lost: Iterable[Lost], store_ms: int
) -> Iterator[tuple[int, bytes]]:
    """Yield offsets and records that fill a range of the log.

    Messages without an offset fill the free ranges, in their order. A message that fits
    into no range gets no record.
    """
    known = sorted(each for each in lost if each.offset >= 0)
    unplaced = [each for each in lost if each.offset < 0]
    while begin < end:
        file_end = begin - begin % file_size + file_size
        stop = min(end, file_end)
        inside = [each for each in known if begin <= each.offset < stop]
        yield from _fill_part(begin, stop, inside, unplaced, store_ms, file_end)
        begin = stop


def _fill_part(
    begin: int,
    stop: int,
    known: list[Lost],
    unplaced: list[Lost],
    store_ms: int,
    file_end: int,
) -> Iterator[tuple[int, bytes]]:
    """Fill a part of one file; at the end of the file it ends with a blank."""
    reserve = BLANK_SIZE if stop == file_end else 0
    for each in known:
        gap = each.offset - begin
        if gap < 0 or 0 < gap < _LEAST or each.offset + each.size > stop - reserve:
            continue
        if each.size < least_size(each.topic):
            continue
        if 0 < stop - reserve - each.offset - each.size < _LEAST and not reserve:
            continue  # the next record would have no room
        yield from _fill_gap(begin, each.offset, unplaced, store_ms)
        yield each.offset, encode_tombstone(each.offset, each.size, store_ms, each)
        begin = each.offset + each.size
    if not reserve:
        yield from _fill_gap(begin, stop, unplaced, store_ms)
        return
    while unplaced and begin + least_size(unplaced[0].topic) <= stop - reserve:
        each = unplaced.pop(0)
        size = least_size(each.topic)
        yield begin, encode_tombstone(begin, size, store_ms, each)
        begin += size
    yield begin, encode_blank(stop - begin)


def _fill_gap(
    begin: int, end: int, unplaced: list[Lost], store_ms: int
) -> Iterator[tuple[int, bytes]]:
    """Fill a range without a known entry."""
    while begin < end:
        size, each = min(end - begin, MOST_BYTES), None
        if 0 < end - begin - size < _LEAST:
            size -= _LEAST
        if unplaced:
            least = least_size(unplaced[0].topic)
            rest = end - begin - least
            if rest == 0 or rest >= _LEAST:
                size, each = least, unplaced.pop(0)
            elif rest > 0:
                size, each = end - begin, unplaced.pop(0)
        yield begin, encode_tombstone(begin, size, store_ms, each)
        begin += size
