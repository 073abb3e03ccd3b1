"""StoreWriter: messages into the log and their queues, and when they are refused.

Order of a put: room in the log and in the queue, log bytes, queue entry, publish.  What
cannot get room fails before anything is written.  Called from the trio thread.
"""

import logging
import shutil
from collections.abc import Sequence

from rmq._fastpath import QueueTail, RecordFlag, record_size
from rmq.clock import Clock
from rmq.errors import DiskFull, StoreError
from rmq.protocol.batch import BatchItem
from rmq.protocol.message import Message
from rmq.protocol.properties import DELAY
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.consume_queue import ConsumeQueue
from rmq.store.consume_queues import ConsumeQueues
from rmq.store.results import BatchPutResult, PutResult, PutStatus
from rmq.store.stats import StoreCounters
from rmq.store.tags import SCHEDULE_TOPIC, TagsCodes

logger = logging.getLogger(__name__)

MAX_PROPERTIES_SIZE = 32_767
PLAIN_SIZE = 512
"""Messages up to this size break no limit: the least maxMessageSize is 1 KiB."""

_TRANSACTION_MASK = int(RecordFlag.TRANSACTION_MASK)
_NOT_QUEUED = (
    int(RecordFlag.TRANSACTION_PREPARED),
    int(RecordFlag.TRANSACTION_ROLLBACK),
)

_PUT_OK = PutStatus.PUT_OK
"""Bound here: looking up an enum's member costs as much as a small call."""


class StoreWriter:
    """The writing half of a `MessageStore`."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        log: CommitLog,
        queues: ConsumeQueues,
        tags: TagsCodes,
        counters: StoreCounters,
    ) -> None:
        self.config = config
        self._clock = clock
        self._log = log
        self._queues = queues
        self._tags = tags
        self._counters = counters
        self._store_host_size = len(log.encoder.store_host)
        self._refuse_reason: str | None = None
        self._is_open = False

    @property
    def is_open(self) -> bool:
        """Whether the store is open."""
        return self._is_open

    @is_open.setter
    def is_open(self, is_open: bool) -> None:
        self._is_open = is_open
        self._log.is_writable = self.is_writable

    @property
    def is_writable(self) -> bool:
        """False after a full disk, a failed flush or a close."""
        return self._is_open and self._refuse_reason is None

    @property
    def refuse_reason(self) -> str | None:
        """Why puts are refused; None if they are not."""
        return self._refuse_reason

    @refuse_reason.setter
    def refuse_reason(self, reason: str | None) -> None:
        if reason is None and self._refuse_reason is not None:
            logger.warning("messages are taken again")
        elif reason is not None and self._refuse_reason is None:
            logger.error("messages are refused: %s", reason)
        self._refuse_reason = reason
        self._log.is_writable = self.is_writable

    def put(self, message: Message) -> PutResult:
        """Append one message; expected failures are statuses."""
        topic, body = message.topic, message.body
        properties = message.stored_properties()
        size = len(body) + len(properties)
        if size > PLAIN_SIZE or not self.is_writable:
            refused = self._refuse(len(body), len(properties.encode()))
            if refused is not None:
                return PutResult(refused)
        queue = self._queues.get_or_create(topic, message.queue_id)
        store_ms = self._clock.now_ms()
        record = (
            queue,
            message.sys_flag & _TRANSACTION_MASK not in _NOT_QUEUED,
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
            return PutResult(self._note_failure(error))
        except OSError as error:
            return PutResult(self._write_failed(error))
        assert where is not None, "there is no room where some was made"
        return PutResult(_PUT_OK, *where, store_ms)

    def _make_room(
        self, queue: ConsumeQueue, message: Message, properties_size: int
    ) -> None:
        """Find room in log and queue, before either is written."""
        queue.prepare()
        self._log.make_room(
            record_size(
                len(queue.topic_bytes),
                len(message.body),
                properties_size,
                len(message.born_host),
                self._store_host_size,
            )
        )

    def put_batch(self, message: Message, items: Sequence[BatchItem]) -> BatchPutResult:
        """Append the items of a client batch side by side; all of them or none."""
        assert items, "a batch has at least one item"
        queue = self._queues.get_or_create(message.topic, message.queue_id)
        topic = queue.topic_bytes
        parts = [
            (item.body, item.properties_text.encode(), item.flag) for item in items
        ]
        for body, properties, _ in parts:
            refused = self._refuse(len(body), len(properties))
            if refused is not None:
                return BatchPutResult(refused)
        hosts = len(message.born_host), self._store_host_size
        sizes = [record_size(len(topic), len(b), len(p), *hosts) for b, p, _ in parts]
        log = self._log
        if not log.fits(sum(sizes)):
            return BatchPutResult(PutStatus.MESSAGE_ILLEGAL)
        try:
            queue.reserve(len(items))
            file = log.make_room(sum(sizes))
        except StoreError as error:
            return BatchPutResult(self._note_failure(error))
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
                0,
                body,
                properties,
            )
            entries.append((offset, sizes[index], log.encoder.tags_code))
            offset += sizes[index]
        return self._finish_batch(queue, entries, store_ms)

    def put_again(
        self,
        queues: dict[bytes, QueueTail],
        records: bytes,
        position: int,
        stored_until_ms: int,
    ) -> tuple[int, int] | None:
        """Append stored records from `position` on, as `LogTail.append_copies`."""
        if not self.is_writable:
            return None
        try:
            return self._log.append_copies(
                queues, records, position, stored_until_ms, self._clock.now_ms()
            )
        except OSError as error:
            self.write_failed(error)
            return None

    def _finish_batch(
        self,
        queue: ConsumeQueue,
        entries: list[tuple[int, int, int]],
        store_ms: int,
    ) -> BatchPutResult:
        """Write staged records and their entries, then publish."""
        first = queue.next_offset
        try:
            end_offset = self._log.commit(len(entries))
        except OSError as error:
            return BatchPutResult(self._write_failed(error))
        for entry in entries:
            queue.prepare()
            queue.publish(*entry)
        self._log.mark_touched(queue)
        self._log.last_store_ms = store_ms
        offsets = tuple(offset for offset, _, _ in entries)
        return BatchPutResult(PutStatus.PUT_OK, first, offsets, end_offset, store_ms)

    def _refuse(self, body_size: int, properties_size: int) -> PutStatus | None:
        if not self.is_writable:
            self._counters.put_failed += 1
            return PutStatus.SERVICE_NOT_AVAILABLE
        if properties_size > MAX_PROPERTIES_SIZE:
            return PutStatus.PROPERTIES_SIZE_EXCEEDED
        largest = self.config.max_message_size
        if body_size > largest:
            return PutStatus.MESSAGE_ILLEGAL
        if not self._log.fits(body_size + properties_size + 512):
            return PutStatus.MESSAGE_ILLEGAL
        return None

    def _note_failure(self, error: StoreError) -> PutStatus:
        """No room: nothing was written, and the next put may try again."""
        self._counters.put_failed += 1
        if isinstance(error, DiskFull):
            self.refuse_reason = str(error)
            return PutStatus.SERVICE_NOT_AVAILABLE
        return PutStatus.CREATE_MAPPED_FILE_FAILED

    def _write_failed(self, error: OSError) -> PutStatus:
        self.write_failed(error)
        return PutStatus.SERVICE_NOT_AVAILABLE

    def write_failed(self, error: OSError) -> None:
        """Refuse all further puts: the log cannot be written."""
        self.fail(f"writing {error.filename} failed: {error.strerror}")

    def fail(self, reason: str) -> None:
        """Refuse all further puts: what was promised can no longer be kept."""
        self.refuse_reason = reason
        self._counters.put_failed += 1

    def used_ratio(self) -> int:
        """Percent of the disk in use, rounded up; of what we may have, as df counts."""
        usage = shutil.disk_usage(self._log.files.folder)
        assert usage.used + usage.free > 0, f"a disk of no size: {usage}"
        return -(-usage.used * 100 // (usage.used + usage.free))

    def check_disk(self) -> None:
        """Refuse puts while the disk is nearly full, allow them again afterwards."""
        used_ratio = self.used_ratio()
        full = f"the disk of {self.config.root_dir} is {used_ratio} % full"
        if used_ratio >= self.config.disk_warning_ratio:
            if self.refuse_reason is None:
                self.refuse_reason = full
        elif self.refuse_reason and self.refuse_reason.startswith(
            ("the disk", "no disk")
        ):
            self.refuse_reason = None
