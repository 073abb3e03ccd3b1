"""MessageStore: the façade over commit log, consume queues, checkpoint and recovery.

One thread (the trio thread) puts and gets; that thread with the GIL is the store's
lock.  `flush_log`, `flush_queues` and `allocate_ahead` are for worker threads, one at a
time.  Reading is in `reader.py`.
Order of a put: room in the log and in the queue, log bytes, queue entry, publish.  What
cannot get room fails before anything is written.
"""

import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict

from rmq._fastpath import (
    RecordEncoder,
    RecordFlag,
    Watermark,
    record_size,
)
from rmq.clock import Clock
from rmq.errors import DiskFull, StoreError
from rmq.protocol.message import BatchItem, Message
from rmq.store.allocate import FileAllocator
from rmq.store.checkpoint import Checkpoint
from rmq.store.cleanup import Cleaner
from rmq.store.commit_log import (
    PWRITE_FROM,
    WINDOW_SIZE,
    CommitLog,
)
from rmq.store.config import StoreConfig
from rmq.store.consume_queue import ConsumeQueue
from rmq.store.consume_queues import ConsumeQueues
from rmq.store.data_dir import DataDirectory
from rmq.store.index import MessageIndex
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.reader import StoreReader
from rmq.store.recovery import Recovery, RecoveryReport
from rmq.store.results import (
    BatchPutResult,
    PutResult,
    PutStatus,
)
from rmq.store.stats import StoreCounters, StoreStatistics
from rmq.store.tags import SCHEDULE_TOPIC, TagsCodes

MAX_PROPERTIES_SIZE = 32_767
PLAIN_SIZE = 512
"""Records up to this size break no limit: the least maxMessageSize is 1 KiB."""

_TRANSACTION_MASK = int(RecordFlag.TRANSACTION_MASK)
_NOT_QUEUED = (
    int(RecordFlag.TRANSACTION_PREPARED),
    int(RecordFlag.TRANSACTION_ROLLBACK),
)

_PUT_OK = PutStatus.PUT_OK
"""Bound here: looking up an enum's member costs as much as a small call."""

AppendListener = Callable[[str, int, int], None]


class MessageStore:
    """Known in Java as `DefaultMessageStore`."""

    def __init__(self, config: StoreConfig, clock: Clock, store_host: bytes) -> None:
        self.config = config
        self.directory = DataDirectory(config)
        self.boot_ms = clock.now_ms()
        self.on_append: AppendListener | None = None
        self.on_flush_wanted: Callable[[], None] | None = None
        self.recovery = RecoveryReport(was_clean=True)
        self.refuse_reason: str | None = None
        self._clock = clock
        self._counters = StoreCounters()
        self._store_host_size = len(store_host)
        self._allocator = FileAllocator(WINDOW_SIZE)
        files = MappedFileQueue(
            self.directory.commit_log, config.commit_log_file_size, self._allocator
        )
        self._log = CommitLog(files, self._allocator, RecordEncoder(store_host))
        self._queues = ConsumeQueues(
            self.directory.consume_queue, config.queue_file_size
        )
        self.index = MessageIndex(
            self.directory.index,
            self._log,
            clock,
            slot_count=config.index_slots,
            entry_limit=config.index_entries,
        )
        self.cleaner = Cleaner(config, clock, self._log, self._queues, self.index)
        self._tags = TagsCodes(config.delay_table())
        self._checkpoint = Checkpoint()
        self._sync = config.is_sync_flush
        self._log.always_pwrite = self._sync
        self._flush_failed = False
        self._is_open = False
        self._reader = reader = StoreReader(
            config, self._log, self._queues, self.index, self._counters
        )
        self.get = reader.get
        self.query = reader.query
        self.record_at = reader.record_at
        self.min_offset = reader.min_offset
        self.max_offset = reader.max_offset
        self.offset_by_time = reader.offset_by_time
        self.store_time_at = reader.store_time_at
        self.is_in_memory = reader.is_in_memory

    @classmethod
    def open(
        cls, config: StoreConfig, *, clock: Clock, store_host: bytes
    ) -> "MessageStore":
        """Lock, recover and open the directory; StoreError names what is wrong."""
        store = cls(config, clock, store_host)
        store.directory.acquire()
        with ExitStack() as undo:
            undo.callback(store.directory.release)
            undo.callback(store._log.close)
            undo.callback(store._queues.close)
            undo.callback(store.index.close)
            store._load()
            undo.pop_all()
        store._is_open = store._reader.is_open = True
        return store

    def _load(self) -> None:
        was_clean = not self.directory.abort.is_set
        self.directory.abort.set()
        self._log.files.load()
        foreign = self._queues.load()
        self._checkpoint = Checkpoint.load(self.directory.checkpoint)
        recovery = Recovery(
            self._log,
            self._queues,
            self._checkpoint,
            self._tags,
            cut_folder=self.directory.cut,
            was_clean=was_clean,
            check_crc=self.config.check_crc_on_recover,
        )
        self.recovery = recovery.run()
        checkpoint = self._checkpoint
        checkpoint.logics_physical_offset = min(
            checkpoint.logics_physical_offset, self.recovery.end_offset
        )
        self.recovery.notes += self.index.load(checkpoint, was_clean=was_clean)
        self.recovery.notes += [
            f"{path} is no queue and was left alone" for path in foreign
        ]

    # -- offsets

    @property
    def durable(self) -> Watermark:
        """Watermark of what fdatasync has confirmed."""
        return self._log.durable

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see."""
        return self._reader.confirm_offset

    @property
    def end_offset(self) -> int:
        """End of the log."""
        return self._log.end_offset

    @property
    def min_physical_offset(self) -> int:
        """Start of the log."""
        return self._log.min_offset

    @property
    def is_writable(self) -> bool:
        """False after a full disk, a failed flush or a close."""
        return self._is_open and self.refuse_reason is None

    # -- put

    def put(self, message: Message) -> PutResult:
        """Append one message; expected failures are statuses."""
        body = message.body
        properties = message.stored_properties().encode()
        queue = self._queues.get_or_create(message.topic, message.queue_id)
        size = record_size(
            len(queue.topic_bytes),
            len(body),
            len(properties),
            len(message.born_host),
            self._store_host_size,
        )
        if size > PLAIN_SIZE or self.refuse_reason is not None or not self._is_open:
            refused = self._refuse(len(body), len(properties))
            if refused is not None:
                return PutResult(refused)
        return self._append(message, queue, body, properties, size)

    def _append(
        self,
        message: Message,
        queue: ConsumeQueue,
        body: bytes,
        properties: bytes,
        size: int,
    ) -> PutResult:
        """Write record and entry, then publish."""
        topic, born_host = queue.topic_bytes, message.born_host
        is_queued = message.sys_flag & _TRANSACTION_MASK not in _NOT_QUEUED
        log = self._log
        try:
            entries = queue.prepare() if is_queued else None
            file = log.make_room(size)
        except StoreError as error:
            return PutResult(self._note_failure(error))
        except OSError as error:
            return PutResult(self._write_failed(error))
        store_ms = self._clock.now_ms()
        offset = file.base_offset + file.write_position
        queue_offset = queue.next_offset if is_queued else 0
        log.encoder.discard()
        try:
            log.encoder.append_record(
                file,
                entries,
                topic,
                message.queue_id,
                queue_offset,
                message.flag,
                message.sys_flag,
                message.born_timestamp,
                born_host,
                store_ms,
                message.reconsume_times,
                message.prepared_transaction_offset,
                body,
                properties,
                use_pwrite=size >= PWRITE_FROM or self._sync,
                tags_code=self._tags.due_time(topic, store_ms, properties)
                if topic == SCHEDULE_TOPIC
                else None,
            )
        except OSError as error:
            return PutResult(self._write_failed(error))
        end_offset = offset + size
        log.last_store_ms = store_ms
        counters = self._counters
        counters.put_messages += 1
        counters.put_bytes += size
        if entries is not None:
            queue.publish(entries, end_offset)
            if self.on_append is not None:
                self.on_append(message.topic, message.queue_id, queue_offset + 1)
        if self._sync and self.on_flush_wanted is not None:
            self.on_flush_wanted()
        return PutResult(_PUT_OK, queue_offset, offset, end_offset, store_ms)

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
        return self._finish_batch(message, queue, entries, store_ms)

    def _finish_batch(
        self,
        message: Message,
        queue: ConsumeQueue,
        entries: list[tuple[int, int, int]],
        store_ms: int,
    ) -> BatchPutResult:
        """Write staged records and their entries, then publish."""
        first = queue.next_offset
        try:
            end_offset = self._log.commit()
        except OSError as error:
            return BatchPutResult(self._write_failed(error))
        for entry in entries:
            queue.prepare()
            queue.append(*entry)
        self._log.last_store_ms = store_ms
        self._counters.put_messages += len(entries)
        self._counters.put_bytes += sum(size for _, size, _ in entries)
        if self.on_append is not None:
            self.on_append(message.topic, message.queue_id, queue.next_offset)
        if self._sync and self.on_flush_wanted is not None:
            self.on_flush_wanted()
        offsets = tuple(offset for offset, _, _ in entries)
        return BatchPutResult(PutStatus.PUT_OK, first, offsets, end_offset, store_ms)

    def _refuse(self, body_size: int, properties_size: int) -> PutStatus | None:
        if not self._is_open or self.refuse_reason is not None:
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
        self.fail(f"writing {error.filename} failed: {error.strerror}")
        return PutStatus.SERVICE_NOT_AVAILABLE

    def fail(self, reason: str) -> None:
        """Refuse all further puts: what was promised can no longer be kept."""
        self.refuse_reason = reason
        self._counters.put_failed += 1

    def used_ratio(self) -> int:
        """Percent of the disk in use."""
        usage = shutil.disk_usage(self.directory.commit_log)
        return 100 - usage.free * 100 // usage.total

    def check_disk(self) -> None:
        """Refuse puts while the disk is nearly full, allow them again afterwards."""
        used_ratio = self.used_ratio()
        full = f"the disk of {self.directory.root} is {used_ratio} % full"
        if used_ratio >= self.config.disk_warning_ratio:
            if self.refuse_reason is None:
                self.refuse_reason = full
        elif self.refuse_reason and self.refuse_reason.startswith(
            ("the disk", "no disk")
        ):
            self.refuse_reason = None

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; its records stay in the log until they age."""
        return self._queues.delete_topic(topic)

    # -- for worker threads

    def flush_log(self) -> None:
        """Make the log durable up to its end; a failure stops all writing.

        The kernel drops dirty pages that it could not write, and a second fdatasync
        succeeds without them: after a failure nothing is called durable any more.
        """
        if self._flush_failed:
            raise StoreError(f"{self.directory.root}: {self.refuse_reason}")
        store_ms = self._log.last_store_ms
        try:
            self._log.flush()
        except OSError as error:
            self._flush_failed = True
            self.fail(f"flushing {error.filename} failed: {error.strerror}")
            raise
        self._counters.log_flushes += 1
        self._checkpoint.physic_msg_ms = store_ms

    @property
    def dirty_log_size(self) -> int:
        """Bytes of the log that are not durable."""
        return self._log.dirty_size

    def flush_queues(self, *, thorough: bool) -> None:
        """Flush queues; a thorough flush takes them all and moves the checkpoint."""
        if not thorough:
            self._queues.flush(self.config.queue_flush_least_pages)
            return
        end_offset, store_ms = self._log.end_offset, self._log.last_store_ms
        self.flush_log()
        self._queues.flush(0)
        checkpoint = self._checkpoint
        checkpoint.logics_msg_ms = store_ms
        checkpoint.logics_physical_offset = end_offset
        self.save_checkpoint()

    def save_checkpoint(self) -> None:
        """Write the checkpoint as it is."""
        self._checkpoint.confirm_offset = self._log.durable.value
        self._checkpoint.index_msg_ms = self.index.full_end_ms
        self._checkpoint.save(self.directory.checkpoint)

    @property
    def index_lag(self) -> int:
        """Bytes of the log that the index does not cover yet."""
        if not self.config.index_enabled:
            return 0
        return max(0, self.confirm_offset - self.index.next_offset)

    def build_index(self) -> None:
        """Index the next part of what the index does not cover."""
        self.index.build(self.confirm_offset)

    @property
    def wants_look_ahead(self) -> bool:
        """True if the writer has come near the end of its blocks."""
        return self._log.wants_look_ahead

    def allocate_ahead(self) -> None:
        """Keep blocks and files ready ahead of the writer."""
        self._log.allocate_ahead()

    # -- end

    def statistics(self) -> StoreStatistics:
        """Return a picture of the counters and offsets."""
        return StoreStatistics(
            **asdict(self._counters),
            min_physical_offset=self._log.min_offset,
            end_offset=self._log.end_offset,
            durable_offset=self._log.durable.value,
            queue_count=len(self._queues),
            mapped_queue_files=len(self._queues.files),
            boot_ms=self.boot_ms,
        )

    def close(self) -> None:
        """Flush, save the checkpoint, remove `abort` and give the directory back.

        `abort` stays if the store could not keep a promise: the next start checks.
        """
        if not self._is_open:
            return
        self._is_open = self._reader.is_open = False
        try:
            if self._flush_failed:
                return
            if self._log.files.files:
                self.flush_queues(thorough=True)
                while self.index_lag:
                    self.build_index()
                self.index.flush()
            self.save_checkpoint()
            if self.refuse_reason is None or self.refuse_reason.startswith(
                ("the disk", "no disk")
            ):
                self.directory.abort.clear()
        finally:
            self.index.close()
            self._queues.close()
            self._log.close()
            self.directory.release()
