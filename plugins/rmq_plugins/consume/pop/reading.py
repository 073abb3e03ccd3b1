"""Reads messages for POPs.

A group begins a queue at its committed offset. A group without a committed offset
begins at the minimum offset, or with initMode 1 at the last message. A message of the
retry topic is answered with the topic's own name and with its handle in POP_CK. The
answer contains the messages of an inner batch one by one, because the client acks each
of them.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from msgspec.structs import replace

from rmq.plugin import BrokerContext, GetStatus, QueueOffset
from rmq.plugin.native import PopQueue
from rmq.protocol import properties as names
from rmq.protocol.flags import INNER_BATCH
from rmq.protocol.inner_batch import inner_messages
from rmq.protocol.properties import encode_properties
from rmq.protocol.records import RecordView, decode_stored_at, encode_stored
from rmq_plugins.consume.filters import MessageFilter, matches_record
from rmq_plugins.consume.pop.checkpoints import Checkpoints

FROM_NEWEST: Final = 1
READS: Final = 8
"""Maximum number of reads of one queue, if the selector accepts no message."""

_HEAD: Final = struct.Struct(">i16xq8xi")
"""Size, queue offset and system flags of a record."""

_MOVED: Final = (
    GetStatus.OFFSET_TOO_SMALL,
    GetStatus.OFFSET_OVERFLOW_BADLY,
    GetStatus.MESSAGE_WAS_REMOVING,
)


class Found(NamedTuple):
    """Messages of one queue."""

    offsets: list[int]
    records: list[bytes]
    """The records, one by one or all of them joined."""

    next_offset: int
    remaining: int

    def split_records(self) -> list[bytes]:
        """Return the records one by one."""
        if len(self.records) == len(self.offsets):
            return self.records
        (body,) = self.records
        return [record for _, record in _split_messages(body, 0, len(self.offsets))]


class PopReader:
    """Reads queues for groups."""

    def __init__(self, broker: BrokerContext, checkpoints: Checkpoints) -> None:
        self._messages = broker.messages
        self._queues = broker.queues
        self._offsets = broker.offsets
        self._checkpoints = checkpoints

    def open_queue(
        self, topic: str, group: str, queue_id: int, *, from_newest: bool
    ) -> PopQueue:
        """Return the queue, with the offset at which the next POP begins."""
        queue = self._checkpoints.find_queue(topic, group, queue_id)
        reset = self._offsets.take_reset(group, topic, queue_id)
        if reset is not None and queue is not None:
            return self._checkpoints.reset(queue, reset)
        if queue is not None:
            committed = self._offsets.query(group, topic, queue_id)
            if committed > queue.next_offset:
                return self._checkpoints.reset(queue, committed)
            return queue
        offset = reset
        if offset is None:
            offset = self._offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self._initial_offset(topic, queue_id, from_newest)
            self._offsets.commit("a POP", group, topic, queue_id, offset)
        return self._checkpoints.begin_queue(topic, group, queue_id, offset)

    def find_position(self, topic: str, group: str, queue_id: int) -> int:
        """Return the offset at which the next POP begins, without a reset."""
        queue = self._checkpoints.find_queue(topic, group, queue_id)
        committed = self._offsets.query(group, topic, queue_id)
        return max(0, committed, 0 if queue is None else queue.next_offset)

    def _initial_offset(self, topic: str, queue_id: int, from_newest: bool) -> int:
        low = self._messages.min_offset(topic, queue_id)
        if not from_newest:
            return low
        if low <= 0 and self._messages.is_in_memory(topic, queue_id, QueueOffset(0)):
            return 0
        return max(self._messages.max_offset(topic, queue_id) - 1, 0)

    def count_remaining(self, topic: str, queue_id: int, offset: int) -> int:
        """Return the number of messages of a queue from an offset on."""
        return max(0, self._messages.max_offset(topic, queue_id) - offset)

    def read(
        self, topic: str, queue_id: int, offset: int, limit: int, wanted: MessageFilter
    ) -> Found:
        """Return at most `limit` messages from an offset on."""
        offsets: list[int] = []
        records: list[bytes] = []
        at = max(offset, 0)
        for _ in range(READS):
            found = self._messages.get(
                topic, queue_id, QueueOffset(at), limit, tag_codes=wanted.tag_codes
            )
            begin = at
            if found.status in _MOVED or found.next_begin_offset > at:
                at = found.next_begin_offset
            if found.status is GetStatus.FOUND:
                if at - begin == found.message_count and self._is_plain(
                    topic, queue_id, wanted
                ):
                    offsets, records = [*range(begin, at)], [found.body]
                    break
                for each, record in _split_messages(found.body, offset, limit):
                    if len(offsets) == limit:  # the rest of an inner batch
                        at = each
                        break
                    predicate = wanted.predicate
                    if predicate is None or matches_record(
                        predicate, RecordView(record)
                    ):
                        offsets.append(each)
                        records.append(record)
            elif found.status not in _MOVED:
                break
            if offsets:
                break
        return Found(offsets, records, at, self.count_remaining(topic, queue_id, at))

    def _is_plain(self, topic: str, queue_id: int, wanted: MessageFilter) -> bool:
        """Whether each record is one message, and no selector reads it."""
        queue = self._queues.get(topic, queue_id)
        assert queue is not None, f"{topic} {queue_id} has given a record"
        is_plain = not (queue.is_batch or self._messages.is_compacted(topic))
        return wanted.predicate is None and is_plain


def _split_messages(body: bytes, first: int, limit: int) -> Iterator[tuple[int, bytes]]:
    """Yield the messages of an answer with their queue offsets, from `first` on.

    An inner batch yields at most `limit` + 1 messages, because callers use no more.
    """
    position = 0
    while position < len(body):
        size, offset, flags = _HEAD.unpack_from(body, position)
        assert size > 0, f"a record of {size} bytes at {position}"
        record = body[position : position + size]
        if not flags & INNER_BATCH:
            yield offset, record
        else:
            batch = decode_stored_at(record, 0)
            for message in inner_messages(batch, first, limit + 1):
                yield message.queue_offset, encode_stored(message)
        position += size


def readdress_retry(data: bytes, topic: str, handle: str) -> bytes:
    """Return a record of a retry topic as a record of the topic itself, with its
    handle.
    """
    record = decode_stored_at(data, 0)
    properties = dict(record.properties)
    properties.setdefault(names.POP_CK, handle)
    text = encode_properties(properties)
    return encode_stored(replace(record, topic=topic, properties_text=text))
