"""MessageStore: the façade over commit log, consume queues, checkpoint and recovery.

One thread (the trio thread) puts and gets; that thread with the GIL is the store's
lock.  `commit_log`, `flush_log`, `flush_queues` and `allocate_ahead` are for worker
threads.  Writing is in `writer.py`, reading in `reader.py`.  One lock: a flush of the
log, as the kernel tells a failed fdatasync to one caller only and the next succeeds.
"""

import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack

import msgspec

from rmq._fastpath import LogTail, PullTable, QueueTail, RecordEncoder, Watermark
from rmq.clock import Clock
from rmq.errors import StoreError
from rmq.protocol.topics import SYSTEM_TOPIC_PREFIX, SYSTEM_TOPICS
from rmq.store.allocate import FileAllocator
from rmq.store.checkpoint import Checkpoint
from rmq.store.cleanup import Cleaner
from rmq.store.commit_log import WINDOW_SIZE, CommitLog
from rmq.store.config import StoreConfig
from rmq.store.consume_queues import ConsumeQueues
from rmq.store.data_dir import DataDirectory
from rmq.store.deleted_topics import DeletedTopics
from rmq.store.index import MessageIndex
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.queue_ends import QueueEnds
from rmq.store.reader import StoreReader
from rmq.store.recovery import Recovery, RecoveryReport
from rmq.store.staging_pool import StagingPool
from rmq.store.stats import StoreCounters, StoreStatistics
from rmq.store.tags import TagsCodes
from rmq.store.writer import StoreWriter


class MessageStore:
    """Known in Java as `DefaultMessageStore`."""

    def __init__(self, config: StoreConfig, clock: Clock, store_host: bytes) -> None:
        self.config = config
        self.directory = DataDirectory(config)
        self.boot_ms = clock.now_ms()
        self.on_new_messages: Callable[[], None] | None = None
        self.recovery = RecoveryReport(was_clean=True)
        self._counters = StoreCounters()
        self._allocator = FileAllocator(
            WINDOW_SIZE, zeroes=config.is_sync_flush or config.warms_files
        )
        files = MappedFileQueue(
            self.directory.commit_log, config.commit_log_file_size, self._allocator
        )
        pool = None
        if config.uses_staging:
            pool = StagingPool(config.staging_pool_size, config.commit_log_file_size)
        self._log = CommitLog(files, self._allocator, RecordEncoder(store_host), pool)
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
        self._deleted_topics = DeletedTopics(self.directory.config)
        self._tags = TagsCodes(config.delay_table())
        self._checkpoint = Checkpoint()
        self._log.always_pwrite = config.is_sync_flush
        self._flush_failed = False
        self._flush_lock = threading.Lock()
        self._is_open = False
        self._writer = writer = StoreWriter(
            config, clock, self._log, self._queues, self._tags, self._counters
        )
        self.put = writer.put
        self.put_batch = writer.put_batch
        self.put_again = writer.put_again
        self.fail = writer.fail
        self.write_failed = writer.write_failed
        self.check_disk = writer.check_disk
        self.used_ratio = writer.used_ratio
        self._reader = reader = StoreReader(
            config, self._log, self._queues, self.index, self._counters
        )
        self.get = reader.get
        self.entries_at = reader.entries_at
        self.tag_codes = reader.tag_codes
        self.query = reader.query
        self.record_at = reader.record_at
        self.message_at = reader.message_at
        self.vouched_at = reader.vouched_at
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
        store._is_open = store._reader.is_open = store._writer.is_open = True
        return store

    def _load(self) -> None:
        was_clean = not self.directory.abort.is_set
        self.directory.abort.set()
        self._log.files.load()
        self._deleted_topics.load()
        self._checkpoint = Checkpoint.load(self.directory.checkpoint)
        durable = self._checkpoint.logics_physical_offset
        if durable > self._log.files.end_offset:
            durable = 0
        foreign = self._queues.load(None if was_clean else durable)
        recovery = Recovery(
            self._log,
            self._queues,
            self._checkpoint,
            self._tags,
            directory=self.directory,
            deleted_topics=self._deleted_topics,
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
        self.recovery.notes += self.directory.foreign.notes

    # -- offsets

    @property
    def durable(self) -> Watermark:
        """Watermark of what fdatasync has confirmed."""
        return self._log.durable

    @property
    def visible(self) -> Watermark | None:
        """Watermark of what readers may see; None if that is the end of the log."""
        return self._reader.visible

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
    def refuse_reason(self) -> str | None:
        """Why puts are refused; None if they are not."""
        return self._writer.refuse_reason

    @property
    def unserved(self) -> Mapping[str, str]:
        """Topics that are kept but not served, and why."""
        return self.directory.foreign.unserved

    @property
    def is_writable(self) -> bool:
        """False after a full disk, a failed flush or a close."""
        return self._writer.is_writable

    @property
    def log_tail(self) -> LogTail:
        """Where compiled handlers append."""
        return self._log

    def queue_tail(self, topic: str, queue_id: int) -> QueueTail | None:
        """Where compiled handlers append to a queue; None before its first message."""
        return self._queues.get(topic, queue_id)

    def pull_table(
        self,
        *,
        version: int,
        on_commits: Callable[[list[tuple[str, str, int, int]]], object],
    ) -> PullTable:
        """Return a table by which compiled handlers read as `get` does."""
        return self._reader.pull_table(version, on_commits)

    # -- after puts

    def end_batch(self) -> list[QueueTail]:
        """Return the queues with new entries since the last call.

        Also wakes who works behind the log, and gives blocks ahead of their writer to
        busy queues.

        Called after each drain and by whoever puts outside of one.
        """
        touched = self._log.take_touched()
        for queue in touched:
            if queue.wants_blocks:
                self._queues.files.extend(queue)
        if touched and self.on_new_messages is not None:
            self.on_new_messages()
        return touched

    def delete_topic(self, topic: str) -> int:
        """Remove the queues of a topic; its records stay in the log until they age.

        The next starts do not build queues from the records that are there now.
        """
        QueueEnds.forget(self.directory.config)
        self._deleted_topics.add(
            {topic}, end=self.end_offset, start=self.min_physical_offset
        )
        return self._queues.delete_topic(topic)

    def clean_unused_topics(self, retained: Collection[str]) -> list[str]:
        """Remove the queues of topics that are neither retained nor of the system.

        Returns their names.
        """
        unused = {
            queue.topic
            for queue in self._queues
            if queue.topic not in retained
            and queue.topic not in SYSTEM_TOPICS
            and not queue.topic.startswith(SYSTEM_TOPIC_PREFIX)
            and queue.topic not in self.unserved
        }
        if unused:
            QueueEnds.forget(self.directory.config)
            self._deleted_topics.add(
                unused, end=self.end_offset, start=self.min_physical_offset
            )
        for topic in unused:
            self._queues.delete_topic(topic)
        return sorted(unused)

    # -- for worker threads

    def commit_log(self) -> None:
        """Move what is staged to the files; a failure stops all writing."""
        try:
            self._log.commit_staged()
        except OSError as error:
            self._flush_failed = True
            self.fail(f"writing {error.filename} failed: {error.strerror}")
            raise

    @property
    def uncommitted_size(self) -> int:
        """Bytes of the log that are only staged."""
        return self._log.uncommitted_size

    def flush_log(self) -> None:
        """Make the log durable up to its end; a failure stops all writing.

        The kernel drops dirty pages that it could not write, and a second fdatasync
        succeeds without them: after a failure nothing is called durable any more.
        """
        with self._flush_lock:
            if self._flush_failed:
                raise StoreError(f"{self.directory.root}: {self.refuse_reason}")
            self.commit_log()
            store_ms = self._log.committed_store_ms
            started = time.monotonic()
            try:
                self._log.flush()
            except OSError as error:
                self._flush_failed = True
                self.fail(f"flushing {error.filename} failed: {error.strerror}")
                raise
            self._counters.count_flush(time.monotonic() - started)
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
        self.flush_log()
        end_offset = self._log.durable.value
        checkpoint = self._checkpoint
        store_ms = checkpoint.physic_msg_ms
        self._queues.flush(0)
        checkpoint.logics_msg_ms = store_ms
        checkpoint.logics_physical_offset = end_offset
        self.save_checkpoint()

    @property
    def checkpoint_distance(self) -> int:
        """Bytes of the log behind the place from which a crash would be recovered."""
        return self._log.end_offset - self._checkpoint.logics_physical_offset

    def save_checkpoint(self) -> None:
        """Write the checkpoint as it is."""
        self._checkpoint.confirm_offset = self._log.durable.value
        self._checkpoint.index_msg_ms = self.index.full_end_ms
        self._checkpoint.save(self.directory.checkpoint)

    @property
    def is_indexed(self) -> bool:
        """True if the index covers all that was stored, also what is not visible."""
        return (
            not self.config.index_enabled
            or self.index.next_offset >= self._log.end_offset
        )

    @property
    def index_lag(self) -> int:
        """Bytes of the log that the index does not cover yet."""
        if not self.config.index_enabled:
            return 0
        return max(0, self.confirm_offset - self.index.next_offset)

    def build_index(self) -> None:
        """Index the next part of what the index does not cover.

        While that is not much, others go before: with few cores a sender's answer.
        """
        is_early = self.index_lag < self.config.index_max_lag // 2
        self.index.build(self.confirm_offset, gives_way=is_early)

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
            **msgspec.structs.asdict(self._counters),
            put_messages=self._log.put_messages,
            put_bytes=self._log.put_bytes,
            min_physical_offset=-1 if self._log.is_empty else self._log.min_offset,
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
        self._is_open = self._reader.is_open = self._writer.is_open = False
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
                QueueEnds.save(
                    self.directory.config, self._queues, self._log.end_offset
                )
                self.directory.abort.clear()
        finally:
            self.index.close()
            self._queues.close()
            self._log.close()
            self.directory.release()
