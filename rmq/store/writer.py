"""StoreWriter: writes messages into the log and their queues, or refuses them.

Order of a put: room in the log and in the queue, log bytes, queue entry, publish.  A
put without room fails before it writes anything.  Call from the trio thread.
"""

from collections.abc import Mapping, Sequence

from rmq._fastpath.log.encode import CRC_ROOM, record_size
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.core.clock import Clock
from rmq.core.errors import DiskBusy, DiskFull, RequestRejected, StoreError
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.batch import BatchItem
from rmq.protocol.flags import INNER_BATCH, NOT_QUEUED, TRANSACTION_MASK
from rmq.protocol.message import Message
from rmq.protocol.properties import (
    CRC32,
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    WAIT,
)
from rmq.protocol.topics import may_dispatch
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.durability import Durability, RefusalKind
from rmq.store.queues.batch_queue import BatchQueue, inner_count
from rmq.store.queues.consume_queue import ConsumeQueue
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.queues.multi_dispatch import LMQ_QUEUE_ID, MARK, parse_targets
from rmq.store.queues.touched import TouchedQueues
from rmq.store.results import BatchPutResult, PutResult, PutStatus
from rmq.store.signals import StoreSignals
from rmq.store.stats import StoreCounters
from rmq.store.tags import SCHEDULE_TOPIC, TagsCodes

MAX_PROPERTIES_SIZE = 32_767
PLAIN_SIZE = 512
"""Smaller messages are within every limit: the minimum of maxMessageSize is 1 KiB."""

MAX_TARGETS = 8_192
"""Maximum number of queues for compiled copies; above it, all are learned again."""

_Part = tuple[bytes, bytes, int]
"""Body, properties and flag of a record."""

_PUT_OK = PutStatus.PUT_OK
"""A module variable, because the lookup of an enum's member costs as much as a small
call.
"""


class StoreWriter:
    """The writing half of a `MessageStore`."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        durability: Durability,
        *,
        tags: TagsCodes,
        counters: StoreCounters,
        signals: StoreSignals,
    ) -> None:
        self._config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._tags = tags
        self._counters = counters
        self._signals = signals
        self._durability = durability
        self._store_host_size = len(log.encoder.store_host)
        self._has_lmq = config.dispatches_lmq
        self._has_record_crc = log.encoder.has_record_crc

    def put(self, message: Message) -> PutResult:
        """Append one message; the status of the result names an expected failure."""
        topic, body = message.topic, message.body
        if self._has_record_crc:
            _make_crc_room(message)
        properties = message.stored_properties()
        size = len(body) + len(properties)
        if size > PLAIN_SIZE or not self._log.is_writable:
            refused = self._refuse(len(body), len(properties.encode()))
            if refused is not None:
                return PutResult(refused)
        queue = self._queues.get_or_create(topic, message.queue_id)
        if queue.is_batch:
            return self._put_alone(queue, message)
        if message.sys_flag & INNER_BATCH:
            return PutResult(PutStatus.MESSAGE_ILLEGAL)
        further: list[ConsumeQueue] = []
        if self._has_lmq and INNER_MULTI_DISPATCH in message.properties:
            found = self._find_targets(message)
            if isinstance(found, PutStatus):
                return PutResult(found)
            further, properties = found, message.stored_properties()
        store_ms = self._clock.now_ms()
        record = (
            queue,
            message.sys_flag & TRANSACTION_MASK not in NOT_QUEUED,
            message.flag,
            message.sys_flag,
            message.born_timestamp,
            message.born_host,
            store_ms,
            message.reconsume_times,
            message.prepared_transaction_offset,
            body,
            properties,
            None
            if queue.topic_bytes != SCHEDULE_TOPIC
            else self._tags.due_time_of_level(store_ms, message.properties.get(DELAY)),
        )
        log = self._log
        try:
            where = log.append(*record)
            if where is None:
                self._make_room(queue, message, len(properties.encode()))
                where = log.append(*record)
        except StoreError as error:
            return PutResult(self._record_failure(error))
        except OSError as error:
            return PutResult(self._write_failed(error))
        assert where is not None, "there is no room after making room"
        if further:
            self._dispatch(queue, where[0], further)
        return PutResult(_PUT_OK, *where, store_ms)

    def _find_targets(self, message: Message) -> list[ConsumeQueue] | PutStatus:
        """Return the light message queues of a message, which gets its offsets there.

        Returns a status if these queues cannot accept it.
        """
        if not may_dispatch(message.topic):
            return []
        try:
            names = parse_targets(message.properties[INNER_MULTI_DISPATCH])
        except RequestRejected:
            return PutStatus.MESSAGE_ILLEGAL
        known = [self._queues.get(name, LMQ_QUEUE_ID) for name in names]
        new_count = known.count(None)
        room = self._config.max_lmq_count - self._queues.lmq_count
        if new_count and new_count > room:
            return PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED
        ends = [0 if queue is None else queue.next_offset for queue in known]
        message.set_property(INNER_MULTI_QUEUE_OFFSET, ",".join(map(str, ends)))
        message.remove_property(WAIT)
        if self._has_record_crc:
            _make_crc_room(message)
        properties = message.stored_properties().encode()
        refused = self._refuse(len(message.body), len(properties))
        if refused is not None:
            return refused
        queues = [self._queues.get_or_create(name, LMQ_QUEUE_ID) for name in names]
        for queue in queues:
            queue.reserve(1)
        return queues

    def _dispatch(
        self, queue: ConsumeQueue, offset: int, further: list[ConsumeQueue]
    ) -> None:
        """Add entries in further queues for a record that is already in its queue."""
        entry = queue.entry_at(QueueOffset(offset))
        for each in further:
            each.publish(*entry)
            self._log.mark_touched(each)

    def _make_room(
        self, queue: ConsumeQueue, message: Message, properties_size: int
    ) -> None:
        """Find room in log and queue, before writing to either."""
        queue.reserve(1)
        self._log.make_room(
            record_size(
                len(queue.topic_bytes),
                len(message.body),
                properties_size,
                len(message.born_host),
                self._store_host_size,
            )
        )

    def _put_alone(self, queue: ConsumeQueue, message: Message) -> PutResult:
        """Append a message or an inner batch to a queue of type BatchCQ.

        `INNER_BASE` has the offset of the first message of an inner batch.
        """
        if message.sys_flag & INNER_BATCH:
            message.set_property(INNER_BASE, str(queue.next_offset))
            if self._has_record_crc:
                _make_crc_room(message)
        properties = message.stored_properties().encode()
        refused = self._refuse(len(message.body), len(properties))
        if refused is not None:
            return PutResult(refused)
        part = message.body, properties, message.flag
        stored = self._put_parts(queue, message, [part])
        if stored.status is not _PUT_OK:
            return PutResult(stored.status)
        [physical_offset] = stored.physical_offsets
        return PutResult(
            _PUT_OK,
            stored.queue_offset,
            physical_offset,
            stored.end_offset,
            stored.store_ms,
        )

    def put_batch(self, message: Message, items: Sequence[BatchItem]) -> BatchPutResult:
        """Append the items of a client batch in their order; all items or none."""
        assert items, "a batch has at least one item"
        queue = self._queues.get_or_create(message.topic, message.queue_id)
        texts = [item.properties_text for item in items]
        if self._has_record_crc:
            texts = [_end_text(text) + CRC_ROOM for text in texts]
        parts = [
            (item.body, text.encode(), item.flag)
            for item, text in zip(items, texts, strict=True)
        ]
        if self._has_lmq and any(MARK in properties for _, properties, _ in parts):
            return BatchPutResult(PutStatus.MESSAGE_ILLEGAL)
        for body, properties, _ in parts:
            refused = self._refuse(len(body), len(properties))
            if refused is not None:
                return BatchPutResult(refused)
        return self._put_parts(queue, message, parts)

    def _put_parts(
        self, queue: ConsumeQueue, message: Message, parts: Sequence[_Part]
    ) -> BatchPutResult:
        """Append records that share all but body, properties and flag."""
        topic = queue.topic_bytes
        hosts = len(message.born_host), self._store_host_size
        sizes = [record_size(len(topic), len(b), len(p), *hosts) for b, p, _ in parts]
        log = self._log
        if not log.fits(sum(sizes)):
            return BatchPutResult(PutStatus.MESSAGE_ILLEGAL)
        try:
            if not queue.is_batch:
                queue.reserve(len(parts))
            file = log.make_room(sum(sizes))
        except StoreError as error:
            return BatchPutResult(self._record_failure(error))
        except OSError as error:
            return BatchPutResult(self._write_failed(error))
        offset = file.base_offset + file.write_position
        store_ms = self._clock.now_ms()
        log.encoder.discard()
        entries = []
        for index, (body, properties, flag) in enumerate(parts):
            log.encoder.stage(
                topic,
                message.queue_id,
                queue.next_offset + index,
                offset,
                flag,
                message.sys_flag,
                message.born_timestamp,
                message.born_host,
                store_ms,
                message.reconsume_times,
                message.prepared_transaction_offset,
                body,
                properties,
            )
            entries.append(
                (PhysicalOffset(offset), sizes[index], log.encoder.tags_code)
            )
            offset += sizes[index]
        count = inner_count(message.sys_flag, parts[0][1])
        return self._finish(queue, entries, store_ms, count)

    def put_again(
        self,
        queues: dict[bytes, QueueTail],
        records: bytes,
        position: int,
        stored_until_ms: int,
    ) -> tuple[int, int] | None:
        """Append stored records from `position` on, as `LogTail.append_copies` does."""
        if not self._log.is_writable or self._has_record_crc:
            return None
        try:
            return self._log.append_copies(
                queues, records, position, stored_until_ms, self._clock.now_ms()
            )
        except OSError as error:
            self.write_failed(error)
            return None

    def put_timed(
        self,
        queues: dict[bytes, QueueTail],
        records: list[bytes],
        added: list[bytes],
        first: int,
        times: tuple[int, int],
    ) -> int:
        """Append timed records from number `first` on, as `LogTail.append_timed` does.

        Their due times are at or after the first of `times`, and before the second.
        """
        if not self._log.is_writable or self._has_record_crc:
            return 0
        try:
            return self._log.append_timed(
                queues, records, added, first, *times, self._clock.now_ms()
            )
        except OSError as error:
            self.write_failed(error)
            return 0

    def learn_target(
        self, queues: dict[bytes, QueueTail], topic: str, queue_id: int
    ) -> None:
        """Let compiled code copy the next messages for a queue without decoding."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or queue.is_batch or self._config.dispatches_lmq:
            return
        if len(queues) == MAX_TARGETS:
            queues.clear()
        queues[f"{topic}\x01{queue_id}".encode()] = queue

    def _finish(
        self,
        queue: ConsumeQueue,
        entries: list[tuple[PhysicalOffset, int, int]],
        store_ms: int,
        count: int,
    ) -> BatchPutResult:
        """Write staged records of `count` messages each, and their entries; publish."""
        first = queue.next_offset
        try:
            end_offset = self._log.commit(len(entries))
        except OSError as error:
            return BatchPutResult(self._write_failed(error))
        for entry in entries:
            if isinstance(queue, BatchQueue):
                queue.add(*entry, store_ms, count)
            else:
                queue.publish(*entry)
        self._log.mark_touched(queue)
        self._log.last_store_ms = store_ms
        offsets = tuple(PhysicalOffset(offset) for offset, _, _ in entries)
        return BatchPutResult(PutStatus.PUT_OK, first, offsets, end_offset, store_ms)

    def _refuse(self, body_size: int, properties_size: int) -> PutStatus | None:
        if not self._log.is_writable:
            self._counters.put_failed += 1
            return PutStatus.SERVICE_NOT_AVAILABLE
        if properties_size > MAX_PROPERTIES_SIZE:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        largest = self._config.max_message_size
        if body_size > largest:
            return PutStatus.MESSAGE_ILLEGAL
        if not self._log.fits(body_size + properties_size + 512):
            return PutStatus.MESSAGE_ILLEGAL
        return None

    def _record_failure(self, error: StoreError) -> PutStatus:
        """Count a put without room: nothing was written; the next put may try again."""
        self._counters.put_failed += 1
        if isinstance(error, DiskFull):
            self._durability.refuse(RefusalKind.DISK_FULL, str(error))
            return PutStatus.SERVICE_NOT_AVAILABLE
        if isinstance(error, DiskBusy):
            return PutStatus.OS_PAGE_CACHE_BUSY
        self._durability.record_put_error(str(error))
        return PutStatus.CREATE_MAPPED_FILE_FAILED

    def _write_failed(self, error: OSError) -> PutStatus:
        self.write_failed(error)
        return PutStatus.SERVICE_NOT_AVAILABLE

    def write_failed(self, error: OSError) -> None:
        """Refuse all further puts: the log cannot be written."""
        self._counters.put_failed += 1
        self._durability.write_failed(error)

    def end_batch(self) -> Mapping[tuple[str, int], int]:
        """Return the ends of the queues with new entries since the last call.

        The result has the ends by topic and queue id, and is valid until the next call.
        The call also wakes the loops that follow the log.

        Call it after each poll, and after a put outside of a poll.
        """
        touched = TouchedQueues(self._log.take_touched())
        if touched:
            self._signals.new_messages()
        return touched


def _make_crc_room(message: Message) -> None:
    """Let the properties of a message end with room for the CRC of its record."""
    message.remove_property(CRC32)
    text = message.stored_properties()
    if not text.endswith(CRC_ROOM):  # such a message was refused before
        message.properties_text = _end_text(text) + CRC_ROOM


def _end_text(properties: str) -> str:
    """Return properties that end with a separator, unless there are none."""
    is_open = properties and not properties.endswith("\2")
    return properties + "\2" if is_open else properties
