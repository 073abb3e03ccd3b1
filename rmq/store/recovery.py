"""Recovery: truncates the log to its true end, completes every queue, reports both.

Known in Java as `CommitLog.recoverNormally` and `recoverAbnormally`.
After a clean shutdown it reads only the log after the last queue entry that has its
record (`entry_check.py`). After a crash it reads from the last file before which, by
the checkpoint, all bytes are durable. It checks every record's lengths, own offset and
body CRC, and adds missing queue entries. The log ends at the first offset without a
record; recovery copies the data after it to `cut/` and never deletes it. It runs before
any other part uses the store.
"""

# tidy: long — one walk, and all that it finds at the end of the log

import logging
import time
from collections.abc import Callable

import msgspec

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.dispatch import DispatchResult
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import WalkedRecord, walk_log
from rmq.core.files import sync_directory
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.store.checkpoint import Checkpoint
from rmq.store.commit_log import CommitLog
from rmq.store.cut import Cut, set_aside
from rmq.store.damage import Damage, LogDamaged, LogFiles, reason_of
from rmq.store.data_dir import DataDirectory
from rmq.store.deleted_topics import DeletedTopics
from rmq.store.entry_check import EntryCheck, names_record
from rmq.store.left_ring import LeftRing
from rmq.store.log_dispatch import LogDispatch, Placed
from rmq.store.queues.consume_queue import FILLER_SIZE, NO_OFFSET, ConsumeQueue
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.queues.queue_ends import QueueEnds
from rmq.store.salvage import has_torn_end, last_record, next_record
from rmq.store.tags import TagsCodes

_GOES_ON = (RecordStatus.OK, RecordStatus.BLANK)
UNFLUSHED_ENTRIES = 2_000_000
"""Number of new entries that stay in memory (40 MB) before they are written to their
files.
"""

PROGRESS_S = 5.0
"""Seconds between log lines about a long recovery."""

MOST_MISSING = 10_000_000
"""Messages before a record that a queue may lack: fillers for them take 200 MB."""

CHECKED_BEHIND = 64 << 20
"""Bytes before the checkpoint that a start after a crash checks again."""

logger = logging.getLogger(__name__)


class RecoveryReport(msgspec.Struct):
    """The result of recovery; logged at start, and in `MessageStore.recovery`."""

    was_clean: bool
    start_offset: int = 0
    end_offset: int = 0
    record_count: int = 0
    entries_added: int = 0
    entries_dropped: int = 0
    entries_corrected: int = 0
    ring_bytes: int = 0
    phases_ms: dict[str, int] = msgspec.field(default_factory=dict)
    cuts: list[Cut] = msgspec.field(default_factory=list)
    notes: list[str] = msgspec.field(default_factory=list)
    losses: list[str] = msgspec.field(default_factory=list)
    """Damage of the log that lost messages; each is a sentence without its period."""

    healed: list[str] = msgspec.field(default_factory=list)
    """Damage of the log that was replaced by the bytes of another broker."""

    _phase_began: float = msgspec.field(default_factory=time.monotonic)

    @property
    def duration_ms(self) -> int:
        """Milliseconds of all phases."""
        return sum(self.phases_ms.values())

    def add(self, notes: list[str], losses: list[str]) -> None:
        """Add sentences of steps before the recovery."""
        self.notes += notes
        self.losses += losses

    def end_phase(self, name: str) -> None:
        """Record the time since the end of the previous phase."""
        now = time.monotonic()
        self.phases_ms[name] = round((now - self._phase_began) * 1000)
        self._phase_began = now

    def lines(self) -> list[str]:
        """Return sentences for the log; empty if there is nothing to report."""
        lines = [str(cut) for cut in self.cuts] + self.notes
        phases = ", ".join(f"{name} {ms}" for name, ms in self.phases_ms.items())
        if self.ring_bytes:
            lines.insert(
                0, f"{self.ring_bytes} bytes of the log were still in the ring"
            )
        if not self.was_clean or self.entries_added or self.entries_dropped:
            lines.insert(
                0,
                f"recovered the log from offset {self.start_offset} to "
                f"{self.end_offset} in {self.duration_ms} ms ({phases}): "
                f"{self.record_count} records checked, {self.entries_added} queue "
                f"entries added, {self.entries_dropped} dropped",
            )
        return lines


class Recovery:
    """A recovery of a store that no other part uses yet."""

    def __init__(  # noqa: PLR0913 - all that a start has read before
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        checkpoint: Checkpoint,
        tags: TagsCodes,
        *,
        directory: DataDirectory,
        deleted_topics: DeletedTopics,
        queue_ends: QueueEnds,
        was_clean: bool,
        check_crc: int = 1,
    ) -> None:
        self.left_ring: LeftRing | None = None
        self.promised = 0
        """Offset before which the claim promises the log; 0: there is no claim."""

        self.confirmed = 0
        """Offset before which the group has all bytes, according to the claim."""

        self.keeps_damage = False
        """True: if the log ends before `promised`, the start fails and truncates
        nothing.
        """

        self._on_progress: Callable[[int], None] | None = None
        self._reported_offset = -1
        self._completed: MappedFile | None = None
        self._log = log
        self._files = log.files
        self._queues = queues
        self._checkpoint = checkpoint
        self._cut_folder = directory.cut
        self._checkpoint_path = directory.checkpoint
        self._check_crc = check_crc
        self._check = EntryCheck(
            log.files,
            queues,
            tags,
            has_addresses=directory.has_tag_addresses,
            add_note=self._add_note,
        )
        self._queue_ends = queue_ends
        self._deleted_topics = deleted_topics
        self._dispatch = LogDispatch(
            log,
            queues,
            tags,
            deleted=lambda: deleted_topics.ends,
            add_note=self._add_note,
        )
        self._unflushed = 0
        self._next_progress = time.monotonic() + PROGRESS_S
        self.report = RecoveryReport(was_clean)

    def run(self, on_progress: Callable[[int], None] | None = None) -> RecoveryReport:
        """Recover; after it, log and queues end at the same message.

        `on_progress` gets the bytes of each part of the log that was read.
        """
        self._on_progress = on_progress
        report = self.report
        self._clear_queues()
        self._check.run(NO_OFFSET if report.was_clean else self._durable_offset())
        report.entries_corrected = self._check.corrected
        report.end_phase("queues")
        report.start_offset = self._start_offset()
        status = self._walk(report.start_offset)
        while self._revoke(self._revived_topics()):
            status = self._walk(report.start_offset)
        lagging = self._lagging_from()
        if lagging < report.start_offset:
            report.start_offset = lagging
            status = self._walk(lagging)
        if not report.was_clean and report.end_offset > self.promised:
            self._leave_out_torn()
        if report.end_offset < self.promised:
            self._report_damage(status)
        report.end_phase("log")
        self._end_log(status)
        report.end_phase("cut")
        dropped = 0
        for queue in self._queues:
            dropped += queue.truncate(PhysicalOffset(report.end_offset))
            assert queue.end_physical <= report.end_offset, queue.folder
        report.entries_dropped += dropped
        if report.losses:
            report.losses[-1] += f", and {dropped} queue entries lost their messages"
        self._queues.tails.log_start = self._files.min_offset
        self._log.open_end()
        report.end_phase("ends")
        return report

    def _clear_queues(self) -> None:
        """Zero all bytes after the end of each queue; move stranded files aside."""
        for queue in self._queues:
            if not self.report.was_clean:
                if queue.has_more_data:
                    queue.clear_after()
                self._drop_orphans(queue)
            if not queue.stranded:
                continue
            aside = self._cut_folder / queue.folder.parents[1].name / queue.topic
            aside = aside / str(queue.queue_id)
            aside.mkdir(parents=True, exist_ok=True)
            for base in queue.stranded:
                name = f"{base:020d}"
                (queue.folder / name).replace(aside / name)
            sync_directory(queue.folder)
            self._add_note(
                f"{queue.folder}: files before {queue.stranded[0]:020d} are missing; "
                f"the files after them were moved to {aside} and are rebuilt"
            )

    def _drop_orphans(self, queue: ConsumeQueue) -> None:
        """Drop entries at the end of a queue that have no record.

        A power cut can leave such entries. An entry without a record does not prove the
        end of the queue.
        """
        kept: int = queue.next_offset
        if queue.end_physical <= self._durable_offset():
            return
        while kept > queue.low_offset:
            start = queue.start_before(QueueOffset(kept))
            if names_record(self._files, queue, start):
                break
            kept = start
        if kept < queue.next_offset:
            self.report.entries_dropped += queue.cut_to(kept)

    def _durable_offset(self) -> int:
        """Offset up to which the checkpoint guarantees entries; 0 if it is beyond the
        log.
        """
        durable = self._checkpoint.logics_physical_offset
        return durable if durable <= self._files.end_offset else 0

    def _revived_topics(self) -> set[str]:
        """Return topics that got messages after their deletion was recorded and before
        it was complete.

        A queue whose deletion was completed begins again with offset 0, after the
        recorded end of the log.
        """
        start = self._files.min_offset
        return {
            topic
            for topic, deleted_at in self._deleted_topics.ends.items()
            for queue in self._queues.of_topic(topic)
            if start < deleted_at < queue.end_physical
            and (queue.low_offset > 0 or queue.entry_at(QueueOffset(0))[0] < deleted_at)
        }

    def _revoke(self, topics: set[str]) -> bool:
        """Forget deletions that a kill interrupted; return whether there were any.

        `topics` are the deleted topics whose records the walk has skipped.
        """
        for topic in topics:
            self._add_note(
                f"topic {topic} was not deleted: the broker ended before the deletion"
            )
        if topics:
            self._deleted_topics.revoke(topics)
        return bool(topics)

    def _lagging_from(self) -> int:
        """Return the offset from which the log is read for queues that lost entries."""
        end = self.report.end_offset
        places = [
            queue.end_physical
            for queue in self._queues
            if queue.stranded and queue.end_physical < end
        ]
        for topic, queue_id, place in self._queue_ends.lagging_queues(
            self._queues, end
        ):
            self._add_note(f"queue {queue_id} of topic {topic} lost entries: rebuilt")
            places.append(PhysicalOffset(place))
        return max(self._files.min_offset, min(places, default=end))

    def _start_offset(self) -> int:
        files = self._files.files
        dispatched = max((queue.end_physical for queue in self._queues), default=-1)
        if not files or dispatched < 0:
            return self._files.min_offset
        if self.report.was_clean:
            proven = self._proven_end()
            if self._files.find(proven) is not None:
                return proven
        for file in reversed(files):
            if self._is_verified(file):
                return self._near_checkpoint(file)
        return self._files.min_offset

    def _proven_end(self) -> int:
        """Return the end of the newest proven record that the last entry of a queue
        names.

        The record itself is the proof; if it is damaged, the checkpoint of a clean
        shutdown is the proof. A last entry beyond that end has no record. A filler
        replaces it, so that the next message gets another queue offset.
        """
        unproven, end = self._check.unproven, self._check.proven_end
        promised = self._checkpoint.logics_physical_offset
        if any(queue.end_physical == promised for queue in unproven):
            end = max(end, promised)
        for queue in unproven:
            last = queue.next_offset - 1
            if end < queue.end_physical and last > queue.low_offset:
                offset, size = queue.read_once(QueueOffset(last - 1))
                if offset + size <= end:
                    queue.replace_entry(
                        QueueOffset(last), PhysicalOffset(0), FILLER_SIZE, 0
                    )
                    self.report.entries_dropped += 1
        return end

    def _near_checkpoint(self, file: MappedFile) -> int:
        """Return the offset to start at in a file: its start, or an offset shortly
        before its end.

        Some durable bytes are checked again, in case a disk has lost them.
        """
        durable = self._checkpoint.logics_physical_offset - file.base_offset
        if not CHECKED_BEHIND < durable <= file.size:
            return file.base_offset
        place = next_record(file, durable - CHECKED_BEHIND, durable)
        return file.base_offset + (place or 0)

    def _is_verified(self, file: MappedFile) -> bool:
        """Whether all entries of records before this file are known to be durable."""
        _, _, records = walk_log(file, 0, file.size, check_crc=self._check_crc, limit=1)
        if not records:
            return False
        durable = self._checkpoint.logics_physical_offset
        if durable > 0:
            return file.base_offset <= durable
        return 0 < records[0].store_ms <= self._checkpoint.logics_msg_ms

    def _walk(self, start: int) -> RecordStatus:
        """Check and dispatch records from `start`; return why the walk ended."""
        self.report.end_offset = start
        self._dispatch.refresh_queues()
        file = self._files.find(start)
        while file is not None:
            position = max(0, self.report.end_offset - file.base_offset)
            status = RecordStatus.OK
            while status is RecordStatus.OK and position < file.size:
                status, position, is_whole = self._walk_on(file, position)
                if not is_whole:  # begin again, with the skipped records
                    file = self._files.find(self.report.start_offset)
                    assert file is not None, self.report.start_offset
                    position = self.report.start_offset - file.base_offset
                    status = RecordStatus.OK
                    self._dispatch.refresh_queues()
                self._report_progress(file.base_offset + position)
            if status not in _GOES_ON:
                self.report.end_offset = file.base_offset + position
                return status
            self.report.end_offset = file.base_offset + file.size
            file = self._files.find(self.report.end_offset)
        return RecordStatus.END

    def _run(self, file: MappedFile, position: int) -> DispatchResult:
        """Dispatch records of the file, and records that a kill left in the ring.

        From *written* on the ring is right and the file may be wrong. A record across
        this offset has zeros at its end in the file, and may look complete.
        """
        left, end = self.left_ring, file.size
        is_complete = left is None or self._completed is file
        if left is not None and not is_complete:
            written = left.written_offset - file.base_offset
            if position < written:
                end = min(end, written)
            else:
                self._complete(left, file, position)
                is_complete = True
        done = self._dispatch.run(file, position, end, check_crc=self._check_crc)
        if left is None or is_complete or done.status in _GOES_ON:
            return done
        self._complete(left, file, done.position)
        return done._replace(status=RecordStatus.OK)

    def _complete(self, left: LeftRing, file: MappedFile, position: int) -> None:
        self._completed = file
        self.report.ring_bytes += left.complete(file, position)

    def _walk_on(
        self, file: MappedFile, position: int
    ) -> tuple[RecordStatus, int, bool]:
        """Dispatch some records; return the status, the position after them, and True.

        False if entries before them are missing.
        """
        done = self._run(file, position)
        report = self.report
        report.record_count += done.records
        report.entries_added += done.entries
        if done.records:
            self._log.last_store_ms = done.store_ms
        is_whole = True
        position, added = done.position, done.entries
        if done.entries:
            self._lower_checkpoint(done.first_offset)
        if done.is_stopped:
            _, position, [record] = walk_log(
                file, position, file.size, check_crc=False, limit=1
            )
            before = report.entries_added
            is_whole = self._place_record(record)
            report.record_count += 1
            if report.entries_added > before:
                self._lower_checkpoint(record.physical_offset)
                added += 1
        self._unflushed += added
        if self._unflushed > UNFLUSHED_ENTRIES:
            self._queues.flush()
            self._unflushed = 0
        return done.status, position, is_whole

    def _lower_checkpoint(self, offset: int) -> None:
        """Save that entries of records from `offset` on are not durable.

        A new entry is in memory, and the checkpoint covers a later offset.
        """
        checkpoint = self._checkpoint
        if offset < checkpoint.logics_physical_offset:
            checkpoint.logics_physical_offset = offset
            checkpoint.logics_msg_ms = 0
            checkpoint.save(self._checkpoint_path)

    def _report_progress(self, offset: int) -> None:
        if self._on_progress is not None:
            self._on_progress(offset - max(self._reported_offset, self._log.min_offset))
            self._reported_offset = offset
        now = time.monotonic()
        if now < self._next_progress:
            return
        self._next_progress = now + PROGRESS_S
        logger.info(
            "recovery has read the log up to %d of %d, %d queue entries added",
            offset,
            self._files.end_offset,
            self.report.entries_added,
        )

    def _place_record(self, record: WalkedRecord) -> bool:
        """Add the record's queue entry; False if entries before it are missing."""
        placed, queue = self._dispatch.place_record(record)
        while placed in (Placed.OVER_AGAIN, Placed.GAP):
            assert queue is not None, "only a queue has gaps"
            if placed is Placed.OVER_AGAIN:
                self.report.entries_dropped += queue.start_over()
            elif self._has_wrong_place(record, queue):
                self._pass_over(record)
                return True
            elif self._revoke(self._topic_if_deleted(queue.topic)):
                return False
            elif self.report.start_offset > self._files.min_offset:
                self.report.start_offset = self._files.min_offset
                return False
            else:
                self._add_note(
                    f"{queue.folder}: messages before {record.queue_offset} are lost"
                )
                self._unflushed += queue.fill_to(record.queue_offset)
            placed, queue = self._dispatch.place_record(record)
        self.report.entries_added += placed is Placed.ADDED
        if queue is not None:
            self._log.last_store_ms = record.store_ms
        return True

    def _has_wrong_place(self, record: WalkedRecord, queue: ConsumeQueue) -> bool:
        """Whether a record's queue offset is damaged, which no checksum covers.

        The next record of the queue has the offset that follows the right offset of
        this record, or so many messages cannot be missing.
        """
        expected = queue.next_offset
        if record.queue_offset - expected > MOST_MISSING:
            return True
        file = self._files.find(record.physical_offset)
        assert file is not None, "it has been read"
        position = record.physical_offset + record.size - file.base_offset
        _, _, following = walk_log(file, position, file.size, check_crc=False)
        for each in following:
            if (each.topic, each.queue_id) == (record.topic, record.queue_id):
                return each.queue_offset == expected + 1
        return False

    def _pass_over(self, record: WalkedRecord) -> None:
        """Refuse a log with this damaged record, or give the record no entry."""
        begin, end = record.physical_offset, record.physical_offset + record.size
        reason, promised = "bad queue offset", self.promised
        if self.keeps_damage and begin < promised:
            self._write_left_ring()
            damage = Damage(begin, end, promised, reason, self.confirmed)
            raise LogDamaged(str(self._files.folders), damage)
        self._add_note(
            f"{self._files.folders}: the record at {begin} has a bad queue offset, "
            f"{record.queue_offset}: no reader gets it"
        )

    def _topic_if_deleted(self, topic: str) -> set[str]:
        """Return the topic if its records were skipped because it was deleted."""
        deleted_at = self._deleted_topics.ends.get(topic, 0)
        return {topic} if deleted_at > self._files.min_offset else set()

    def _report_damage(self, status: RecordStatus) -> None:
        """Refuse a log that has lost records, or report the messages that a truncation
        loses.
        """
        end, promised = self.report.end_offset, self.promised
        self._write_left_ring()
        files = LogFiles(self._files.folders, self._files.file_size)
        whole = files.next_whole(end, promised)
        damage = Damage(end, whole, promised, reason_of(status), self.confirmed)
        if self.keeps_damage:
            raise LogDamaged(str(self._files.folders), damage)
        text = f"{self._files.folders}: {damage}: it is truncated there"
        self._add_note(text)
        self.report.losses.append(text)

    def _write_left_ring(self) -> None:
        """Add the bytes that a kill left in the ring, because a walk that ends at
        damage does not reach them.

        No other broker may have these bytes.
        """
        left = self.left_ring
        if left is None:
            return
        for file in self._files.files:
            position = max(0, left.written_offset - file.base_offset)
            if position < file.size:
                self.report.ring_bytes += left.complete(file, position)
                file.flush()

    def _add_note(self, text: str) -> None:
        if text not in self.report.notes:
            self.report.notes.append(text)

    def _leave_out_torn(self) -> None:
        """End the log before its last record if the disk has lost the end of this
        record.

        Clients would get this record with other properties, and the log of a slave
        would differ. An acknowledged record is durable, so it is complete.
        """
        end = self.report.end_offset
        file = self._files.find(end - 1)
        if file is None:
            return
        position = last_record(file, end - file.base_offset)
        if position is not None and has_torn_end(file, position):
            self.report.end_offset = file.base_offset + position

    def _end_log(self, status: RecordStatus) -> None:
        """Truncate the log at the end of the walk; copy the data after it to `cut/`."""
        files = self._files.files
        end = self.report.end_offset
        while files and files[-1].base_offset >= end:
            file = files.pop()
            self._set_aside(file, 0, status)
            file.unlink()
            file.close()
        if not files:
            return
        last = files[-1]
        position = min(end - last.base_offset, last.size)
        if position < last.size:
            self._set_aside(last, position, status)
            last.zero(position, last.size)
        last.write_position = position
        if not self.report.was_clean:
            for file in files:
                if file.base_offset + file.size > self.report.start_offset:
                    file.flush()
        last.assume_flushed(position)

    def _set_aside(self, file: MappedFile, position: int, status: RecordStatus) -> None:
        """Copy the data of [position, end of file), if there is any."""
        reason = reason_of(status)
        cut = set_aside(file, position, self._cut_folder, reason)
        if cut is not None:
            self.report.cuts.append(cut)
