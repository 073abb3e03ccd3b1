"""MessageStore: the parts of one data directory, opened and closed together.

`reads` and `writes` are for messages; `log`, `queues` and `index` hold them.
`positions` defines and orders the positions in the log; `durability` moves them.
One thread (the trio thread) reads and writes; that thread with the GIL is the store's
lock.  Worker threads may run the steps of a flush, `save_checkpoint`, and the functions
that are marked so.
"""

import logging
import secrets
import time
from collections.abc import Callable, Collection, Generator, Iterator
from contextlib import ExitStack
from functools import partial

import msgspec

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.tail_ring import TailRing
from rmq.core.clock import Clock
from rmq.core.errors import CorruptLog, DiskFull, LogFailed, StoreError
from rmq.core.offsets import PhysicalOffset
from rmq.protocol.topics import is_lmq, is_system_topic
from rmq.store.allocate import FileAllocator
from rmq.store.checkpoint import Checkpoint
from rmq.store.claim import ClaimFile
from rmq.store.cleanup import Cleaner
from rmq.store.commit_log import WINDOW_SIZE, CommitLog
from rmq.store.compaction.compaction_store import CompactionStore, run_steps
from rmq.store.config import StoreConfig
from rmq.store.cut import CutMark, finish_cut
from rmq.store.damage import Damage, LogDamaged, LogFiles
from rmq.store.data_dir import DataDirectory
from rmq.store.deleted_topics import DeletedTopics
from rmq.store.descriptors import DescriptorReserve
from rmq.store.disk import Disk
from rmq.store.durability import Durability, RefusalKind
from rmq.store.entry_check import EntryCheck
from rmq.store.index import MessageIndex
from rmq.store.left_ring import LeftRing
from rmq.store.log_backup import LogBackup
from rmq.store.log_digests import LogDigests
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.positions import LogPositions
from rmq.store.queues.consume_queues import ConsumeQueues, Step
from rmq.store.queues.queue_ends import QueueEnds
from rmq.store.reader import StoreReader
from rmq.store.recovery import Recovery, RecoveryReport
from rmq.store.scrub import Scrub
from rmq.store.signals import StoreSignals
from rmq.store.stats import StoreCounters, StoreStatistics
from rmq.store.tags import TagsCodes
from rmq.store.timer.timer_store import TimerStore
from rmq.store.writer import StoreWriter
from rmq.store.wrong_entries import WrongEntries

logger = logging.getLogger(__name__)

UNFLUSHED_LIMIT = 1 << 30
"""Bytes of the log whose queue entries may wait in memory while files cannot be
written.

An entry has 20 bytes, so these entries take at most 190 MiB.
"""


class MessageStore:
    """Known in Java as `DefaultMessageStore`."""

    def __init__(  # tidy: long — one part after the other
        self,
        config: StoreConfig,
        clock: Clock,
        store_host: bytes,
        *,
        is_copy: bool = False,
    ) -> None:
        self.config = config
        self.directory = directory = DataDirectory(config)
        self.clock = clock
        self.boot_ms = clock.now_ms()
        self.claim_file = ClaimFile(directory.root)
        self.claim: Claim
        self.recovery = RecoveryReport(was_clean=True)
        self.checkpoint = Checkpoint()
        self.reserve = DescriptorReserve()
        self.log = log = _make_log(config, directory, self.reserve, store_host)
        self.queues = queues = ConsumeQueues(
            directory.consume_queue,
            config.queue_file_size,
            self.reserve,
            batch_file_size=config.batch_queue_file_size,
            dispatches_lmq=config.dispatches_lmq,
            store_ms_at=log.store_ms_at,
        )
        self._counters = counters = StoreCounters()
        self.positions = positions = LogPositions(
            log, is_sync_flush=config.is_sync_flush
        )
        self.durability = durability = Durability(
            log, positions, config, is_copy=is_copy or config.is_replica
        )
        self.disk = Disk(config, directory.log_folders, durability)
        self.index = index = MessageIndex(
            directory.index, log, positions, config, clock
        )
        self.deleted_topics = DeletedTopics(directory.config)
        self.tags = tags = TagsCodes(config.delay_table())
        self.signals = signals = StoreSignals()
        self.writes = StoreWriter(
            config,
            clock,
            log,
            queues,
            durability,
            tags=tags,
            counters=counters,
            signals=signals,
        )
        self.digests = LogDigests(directory.root, log, positions, clock, config)
        self.compaction = CompactionStore(
            config, directory.root, log, queues, positions, self.digests
        )
        self.scrub = Scrub(log, self.digests, positions, clock, config)
        self.wrong_entries = WrongEntries(config, log.reader, self._make_entry_check)
        self.reads = StoreReader(
            config,
            log,
            queues,
            index,
            durability,
            self.compaction,
            self.digests,
            self.wrong_entries,
        )
        self.cleaner = Cleaner(
            config, clock, log, queues, index, positions, self.compaction
        )
        self.timer = TimerStore(
            config, directory.root, clock, log, queues, self.reads, durability, signals
        )

    def _make_entry_check(self) -> EntryCheck:
        return EntryCheck(
            self.log.files,
            self.queues,
            self.tags,
            has_addresses=self.directory.has_tag_addresses,
            add_note=logger.warning,
        )

    @classmethod
    def open(
        cls,
        config: StoreConfig,
        *,
        clock: Clock,
        store_host: bytes,
        is_copy: bool = False,
        keeps_damage: bool = False,
        on_progress: Callable[[int], None] | None = None,
    ) -> "MessageStore":
        """Lock, recover and open the directory; StoreError names the problem.

        A copy refuses messages before `become_master`. With `keeps_damage`, LogDamaged
        if the log has lost records; the log stays as it is. `on_progress` gets the
        bytes of each part of the log that recovery has read.
        """
        store = cls(config, clock, store_host, is_copy=is_copy)
        store.directory.acquire()
        with ExitStack() as undo:
            undo.callback(store.directory.release)
            undo.callback(store.reserve.close)
            store.reserve.open_reserve()
            undo.callback(store.log.close)
            undo.callback(store.queues.close)
            undo.callback(store.index.close)
            store._load(keeps_damage=keeps_damage, on_progress=on_progress)
            if not is_copy:
                store._start_ring()
            store._begin_claim()
            undo.pop_all()
        store.durability.open()
        return store

    def become_master(self) -> None:
        """Accept messages from now on, in a store that was opened as a copy."""
        self._start_ring()
        self.durability.become_master()

    def _load(  # tidy: long — the order of a start
        self, *, keeps_damage: bool, on_progress: Callable[[int], None] | None
    ) -> None:
        notes: list[str] = []
        mark, aside = CutMark(self.directory.root), LogBackup(self.directory)
        self.claim = self.log.claim = self.claim_file.open()
        was_reseeded = _finish_backup(aside, mark, notes)
        cut_at = mark.load()
        was_clean = not self.directory.abort.is_set and cut_at is None
        left = None if was_clean else LeftRing.find(self.directory, notes)
        if left is None:
            self.directory.abort.set()
        path = self.directory.checkpoint
        promised = 0 if was_reseeded else self.claim_file.promised_end(path)
        is_ours = promised > 0
        if cut_at is not None:
            promised = min(promised, cut_at)
        self.checkpoint = checkpoint = Checkpoint.load(path, notes)
        checkpoint.before_save = self.claim_file.save_checkpoint
        losses = self._find_missing_files(promised, keeps_damage=keeps_damage)
        notes += losses
        self.log.files.load(None if was_clean else checkpoint.flushed_offset)
        self.deleted_topics.load()
        if cut_at is not None:
            parts = checkpoint, self.directory, self.deleted_topics
            notes.append(finish_cut(self.log.files, PhysicalOffset(cut_at), *parts))
        durable = checkpoint.logics_physical_offset
        if durable > self.log.files.end_offset:
            durable = 0
        ends = QueueEnds.load(self.directory.config)
        self.queues.batch_topics.update(self.directory.foreign.batch_topics)
        if was_clean:
            known = ends.valid_ends(self.log.files.end_offset)
            foreign = self.queues.load(known)
        else:
            foreign = self.queues.load({}, PhysicalOffset(durable))
        self._drop_deleted()
        recovery = Recovery(
            self.log,
            self.queues,
            checkpoint,
            self.tags,
            directory=self.directory,
            deleted_topics=self.deleted_topics,
            queue_ends=ends,
            was_clean=was_clean,
            check_crc=self.config.crc_checks,
        )
        recovery.left_ring = left
        recovery.promised, recovery.confirmed = promised, self.claim.confirmed_offset
        recovery.keeps_damage = keeps_damage
        self.recovery = recovery.run(on_progress)
        self.recovery.add(notes, losses)
        self.digests.open(self.recovery, is_ours=is_ours)
        checkpoint.logics_physical_offset = min(
            checkpoint.logics_physical_offset, self.recovery.end_offset
        )
        self.positions.durable_store_ms = checkpoint.physic_msg_ms
        self.recovery.notes += self.index.load(checkpoint, was_clean=was_clean)
        self.recovery.notes += [
            *self.compaction.load(was_clean=was_clean),
            *(f"{path} is no queue and stays untouched" for path in foreign),
            *self.directory.foreign.start_notes,
        ]
        if cut_at is not None:
            mark.clear()

    def _find_missing_files(self, promised: int, *, keeps_damage: bool) -> list[str]:
        """Return a sentence about files that the log has lost, or refuse the log."""
        if not promised:
            return []
        files, claim = self.log.files, self.claim
        found = LogFiles(files.folders, files.file_size)
        missing = found.missing(claim.start_offset, promised)
        if missing is None:
            return []
        reason = "files are missing"
        damage = Damage(*missing, promised, reason, claim.confirmed_offset)
        if keeps_damage:
            raise LogDamaged(str(files.folders), damage)
        return [f"{files.folders}: {damage}"]

    def _begin_claim(self) -> None:
        """Start the claim of the log that recovery has found; durable at the return."""
        log = self.log
        self.claim.begin(log.min_offset, log.end_offset, self.positions.durable)
        self.claim_file.name_checkpoint(self.directory.checkpoint)
        self.reserve.open(self.claim_file.flush)

    def _start_ring(self) -> None:
        """Append to a ring from now on, if the configuration has one.

        Recovery has moved the records of an earlier ring to the log and flushed it. So
        the ring of this run may have the same name.
        """
        config, directory = self.config, self.directory
        directory.ring.unlink(missing_ok=True)
        if not config.ring_size or config.is_replica:
            return
        generation = secrets.randbits(62) + 1
        try:
            directory.abort.set(generation)
            ring = TailRing(
                str(directory.ring),
                generation,
                size=config.ring_size,
                begin=self.log.ring_begin(),
            )
        except OSError as error:
            self.recovery.notes.append(
                f"{directory.ring}: {error.strerror}; the log is written without a ring"
            )
            return
        self.log.busy_limit_ms = config.page_cache_busy_ms
        self.log.start_ring(
            ring,
            self.positions.durable,
            self.durability.times,
            is_durable=config.is_sync_flush,
            interval_ms=config.flush_interval_ms,
        )

    def _drop_deleted(self) -> None:
        """Remove queues of deleted topics that a flush wrote when the broker died."""
        for topic, deleted_at in self.deleted_topics.ends.items():
            queues = self.queues.of_topic(topic)
            if all(queue.end_physical <= deleted_at for queue in queues):
                self.queues.delete_topic(topic)
                self.queues.remove_deleted({topic})

    def open_timer(self) -> list[str]:
        """Open the timer's files; return sentences about anomalies."""
        return self.timer.open(was_clean=self.recovery.was_clean)

    # -- deletion

    def was_deleted(self, topic: str, offset: PhysicalOffset) -> bool:
        """Whether a topic was deleted after the record at an offset was stored."""
        return offset < self.deleted_topics.ends.get(topic, -1)

    def record_deletion(self, topics: set[str]) -> Step:
        """Begin to delete topics: return the blocking step, for a worker.

        After it, later starts do not rebuild queues from the existing records.
        """
        has_queues = any(self.queues.of_topic(topic) for topic in topics)
        end, start = self.log.end_offset, self.log.min_offset
        return partial(self._record_deleted, topics, end, start, has_queues)

    def _record_deleted(
        self,
        topics: set[str],
        end: PhysicalOffset,
        start: PhysicalOffset,
        has_queues: bool,
    ) -> None:
        if has_queues:
            QueueEnds.remove_file(self.directory.config)
        if topics:
            self.deleted_topics.add(topics, end=end, start=start)

    def delete_topic(self, topic: str) -> Step:
        """Remove the queues of a topic; return the step that removes their files, for a
        worker.

        The records stay in the log until they expire. If `record_deletion` was not
        called, or messages were stored since, this blocks.
        """
        noted = self.deleted_topics.ends.get(topic, -1)
        ends = [queue.end_physical for queue in self.queues.of_topic(topic)]
        if ends and (noted < 0 or max(ends) > noted):
            self.record_deletion({topic})()
        self.queues.delete_topic(topic)
        return partial(self._remove_files, topic, self.compaction.delete_topic(topic))

    def _remove_files(self, topic: str, remove_compacted: Step) -> None:
        self.queues.remove_deleted({topic})
        remove_compacted()

    def unused_topics(self, retained: Collection[str]) -> set[str]:
        """Return topics with queues, without retained topics and system topics."""
        return {
            topic
            for topic in self.queues.topics()
            if topic not in retained
            and not is_system_topic(topic)
            and not is_lmq(topic)
        }

    # -- flush

    def flush_steps(self, *, thorough: bool) -> Generator[Step]:
        """Flush queues; a thorough flush includes all and moves the checkpoint.

        Yields the parts that block, for a worker; the parts between them are for the
        trio thread.  StoreError if entries could not be written; they stay in memory.
        """
        if not thorough:
            yield from self._flush_queues(self.config.queue_flush_least_pages)
            if self.checkpoint.index_msg_ms != self.index.full_end_ms:
                yield self.save_checkpoint  # a full index file is not rebuilt
            return
        yield self.durability.flush
        end_offset = self.positions.durable.value
        store_ms = self.positions.durable_store_ms
        yield from self._flush_queues(0)
        yield self._save_digests
        self.checkpoint.logics_msg_ms = store_ms
        self.checkpoint.logics_physical_offset = end_offset
        yield self.save_checkpoint

    def _save_digests(self) -> None:
        """Save the digests of the blocks that the checkpoint covers."""
        try:
            self.digests.update(saves_all=True)
        except OSError as error:
            logger.error("cannot save the digests of the log: %s", error)

    def _flush_queues(self, least_pages: int) -> Iterator[Step]:
        try:
            yield from self.queues.flush_steps(least_pages)
        except DiskFull as error:
            self.durability.refuse(RefusalKind.DISK_FULL, str(error))
            raise
        except StoreError as error:
            if self.checkpoint_distance > UNFLUSHED_LIMIT:
                self.durability.refuse(RefusalKind.WRITE_FAILED, str(error))
            raise

    def flush_queues(self, *, thorough: bool) -> None:
        """Do all of `flush_steps`; blocks."""
        for step in self.flush_steps(thorough=thorough):
            step()

    @property
    def checkpoint_distance(self) -> int:
        """Bytes of the log that recovery would read after a crash."""
        return self.log.end_offset - self.checkpoint.logics_physical_offset

    @property
    def is_flushed(self) -> bool:
        """Whether a thorough flush would have nothing to do."""
        is_indexed = self.checkpoint.index_msg_ms == self.index.full_end_ms
        return is_indexed and not self.checkpoint_distance

    def save_checkpoint(self) -> None:
        """Write the checkpoint with its current values."""
        self.checkpoint.physic_msg_ms = self.positions.durable_store_ms
        safe = self.positions.durable.value
        self.checkpoint.confirm_offset = min(safe, self.positions.visible)
        self.checkpoint.index_msg_ms = self.index.full_end_ms
        self.reserve.open(partial(self.checkpoint.save, self.directory.checkpoint))

    # -- end

    def statistics(self) -> StoreStatistics:
        """Return the counters and offsets."""
        times = self.durability.times
        return StoreStatistics(
            **msgspec.structs.asdict(self._counters),
            **msgspec.structs.asdict(self.reads.counts()),
            put_messages=self.log.put_messages,
            put_bytes=self.log.put_bytes,
            log_flushes=sum(times.counts),
            flush_counts=times.counts,
            flush_seconds=times.sum_s,
            min_physical_offset=-1 if self.log.is_empty else self.log.min_offset,
            end_offset=self.log.end_offset,
            durable_offset=self.positions.durable.value,
            queue_count=len(self.queues),
            mapped_queue_files=len(self.queues.files),
            boot_ms=self.boot_ms,
        )

    def close(self, *, index_limit_s: float = 1.0) -> None:
        """Flush, save the checkpoint, remove `abort` and release the directory.

        `abort` stays if a guarantee was broken: the next start checks the log. The stop
        indexes the log for at most `index_limit_s`; the next start continues.
        """
        if not self.durability.is_open:
            return
        self.durability.close()
        try:
            if self.durability.has_flush_failed:
                return
            if self.log.files.files:
                self._flush_all()
                self._finish_index(index_limit_s)
                self._finish_copies()
            is_clean = not (self.durability.keeps_abort or self.queues.has_unflushed)
            self.timer.close(is_clean=is_clean)
            self.claim.update(self.log.end_offset)
            self._save_ends(is_clean=is_clean)
            if is_clean:
                self.directory.ring.unlink(missing_ok=True)
                self.directory.abort.clear()
        finally:
            self.timer.close(is_clean=False)
            self.index.close()
            self.queues.close()
            self.log.close()
            self.reserve.close()
            self.directory.release()

    def _flush_all(self) -> None:
        """Flush log and queues; the next start rebuilds entries that are missing."""
        try:
            self.flush_queues(thorough=True)
        except LogFailed:
            raise
        except (StoreError, OSError) as error:  # OSError: no room for the checkpoint
            logger.error(
                "cannot flush the queues; the next start completes them: %s", error
            )

    def _finish_index(self, limit_s: float) -> None:
        """Index the log to its end, or until the time limit."""
        deadline_s = time.monotonic() + limit_s
        try:
            while self.index.lag_bytes:
                if time.monotonic() > deadline_s:
                    logger.info(
                        "%d MiB of the log are not indexed; the next start continues",
                        self.index.lag_bytes >> 20,
                    )
                    break
                self.index.build()
        except (DiskFull, CorruptLog) as error:
            logger.error("cannot complete the index; the next start tries: %s", error)
        self.index.flush()

    def _finish_copies(self) -> None:
        try:
            run_steps(self.compaction.copy_steps())
        except (StoreError, OSError) as error:
            logger.error(
                "cannot copy messages of compaction topics; the broker copies them "
                "after its next start: %s",
                error,
            )

    def _save_ends(self, *, is_clean: bool) -> None:
        """Save the ends of log and queues; the files of the last flush are lower
        bounds.
        """
        try:
            self.save_checkpoint()
            if is_clean:
                ends = self.queues, self.log.end_offset
                QueueEnds.save(self.directory.config, *ends)
        except OSError as error:
            logger.error(
                "cannot save the checkpoint; the next start reads more of the log: %s",
                error,
            )


def _finish_backup(aside: LogBackup, mark: CutMark, notes: list[str]) -> bool:
    """Move the rest of a log away if a kill has interrupted this; return whether it
    has.
    """
    if not aside.is_unfinished():
        return False
    aside.move_files()
    mark.clear()
    aside.finish()
    notes.append(f"an earlier run began with an empty log: {aside}")
    return True


def _make_log(
    config: StoreConfig,
    directory: DataDirectory,
    reserve: DescriptorReserve,
    store_host: bytes,
) -> CommitLog:
    zeroes = config.is_sync_flush or config.warms_files
    allocator = FileAllocator(WINDOW_SIZE, zeroes=zeroes, room=reserve)
    size = config.commit_log_file_size
    files = MappedFileQueue(directory.log_folders, size, allocator)
    encoder = RecordEncoder(store_host)
    encoder.has_record_crc = config.has_record_crc
    log = CommitLog(files, allocator, encoder)
    log.always_pwrite = config.is_sync_flush
    return log
