"""ReplicaWriter: appends the bytes of another broker's log, with queue entries.

Bytes come in any pieces, in order.  The received part of a record is in its file at
once.  The log ends, for readers and for the disk, before the first record that is not
whole and checked.  So a record is neither read nor acknowledged if it could not be
dispatched.  Each record has the right magic, lengths, CRC, own offset and queue offset.
Invariants: whole = `log.end_offset` <= `received_offset`, both in the last file or at
its end; bytes after `received_offset` are zero.
Crash contract: a start truncates an incomplete record.
Belongs to the trio thread.
"""

import logging
import time
from collections.abc import Iterator
from functools import partial

from rmq._fastpath.log.decode import RecordStatus, RecordView
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.core.errors import DiskFull, Diverged, StoreError
from rmq.core.offsets import PhysicalOffset
from rmq.store.cut import (
    Cut,
    CutMark,
    end_last_file,
    lower,
    set_aside,
    take_files_after,
)
from rmq.store.damage import reason_of
from rmq.store.durability import RefusalKind
from rmq.store.log_backup import LogBackup
from rmq.store.log_dispatch import LogDispatch, Placed
from rmq.store.message_store import MessageStore
from rmq.store.queues.consume_queues import Step
from rmq.store.salvage import last_record, next_record

logger = logging.getLogger(__name__)

HEAD_SIZE = 8
"""Bytes with size and kind of a record."""

RECORDS_AT_ONCE = 1_000
HOLD_LIMIT_S = 2.0
HOLD_PAUSE_S = 0.005
"""Pause between two checks for readers of the bytes that a truncation removes."""


class ReplicaWriter:
    """The writer at the end of a copied log."""

    def __init__(self, store: MessageStore) -> None:
        self.clock = store.clock
        self._store = store
        self._log = store.log
        self._files = store.log.files
        self._dispatch = LogDispatch(
            store.log,
            store.queues,
            store.tags,
            deleted=lambda: store.deleted_topics.ends,
            add_note=logger.warning,
            has_readers=True,
        )
        self._dispatch.refresh_queues()
        self.received_offset = store.log.end_offset
        self.cuts: list[Cut] = []
        """The parts that the last truncation removed, and the files with their copies.
        """

    @property
    def whole_offset(self) -> PhysicalOffset:
        """End of the last checked record."""
        return self._log.end_offset

    @property
    def confirmed_offset(self) -> PhysicalOffset:
        """End of the bytes of this log that the group has confirmed."""
        return self._store.positions.confirmed_offset

    @property
    def is_empty(self) -> bool:
        """True before the first byte."""
        return self._log.is_empty

    def tail(self) -> tuple[PhysicalOffset, bytes] | None:
        """Return the offset of the last record, and the bytes from there to the end.

        A blank record may follow it. None if there is no record. StoreError if the disk
        has changed the records of the last file.
        """
        files = [file for file in self._files.files if file.write_position]
        if not files:
            return None
        file = files[-1]
        end = file.write_position
        last = last_record(file, end)
        if last is None:
            raise StoreError(
                f"{file.path} has no whole record any more: the disk has changed "
                "bytes; a restart of this broker repairs the file"
            )
        return PhysicalOffset(file.base_offset + last), file.read(last, end - last)

    def read(self, offset: PhysicalOffset, size: int) -> bytes:
        """Return a record from the result of `find_records`."""
        data = self._log.read(offset, size)
        assert data is not None, f"the log has no record at {offset}"
        return data

    def ends_record(self, offset: PhysicalOffset) -> bool:
        """Whether a record or a file ends at an offset of this log."""
        file = self._files.find(offset)
        if file is None or offset == self.whole_offset:
            return offset == self.whole_offset
        position = offset - file.base_offset
        return not position or self._log.record_size_at(offset) > 0

    def find_records(self, start: PhysicalOffset) -> list[tuple[int, int]]:
        """Return offset and size of all records from about `start` on.

        For a worker: no task truncates that part of the log meanwhile.
        """
        found: list[tuple[int, int]] = []
        for file in list(self._files.files):
            end = file.write_position
            position: int | None = max(0, start - file.base_offset)
            if position:
                position = next_record(file, min(position, end), end)
            status = RecordStatus.OK
            while status is RecordStatus.OK and position is not None and position < end:
                status, position, records = walk_log(
                    file, position, end, check_crc=False, limit=RECORDS_AT_ONCE
                )
                found += [(record.physical_offset, record.size) for record in records]
        return found

    def append(self, offset: PhysicalOffset, data: bytes | memoryview) -> None:
        """Write the master's bytes at `offset`; check and dispatch the whole records.

        Diverged if the bytes cannot follow this log; DiskFull before any byte is
        written.
        """
        if self._log.is_empty:
            self.received_offset = offset
        if offset != self.received_offset:
            raise Diverged(
                offset,
                f"the master continues there, this log at {self.received_offset}",
            )
        if not data:
            return
        file = self._file_for(offset)
        position = offset - file.base_offset
        if len(data) > file.size - position:
            raise Diverged(
                offset,
                f"the master's file is longer than {file.size} bytes: set "
                "mappedFileSizeCommitLog to its value",
            )
        try:
            self._log.allocate(file, position + len(data))
        except DiskFull as error:
            self._store.durability.refuse(RefusalKind.DISK_FULL, str(error))
            raise
        try:
            file.pwrite(position, data)
        except OSError as error:
            self._store.writes.write_failed(error)
            raise
        self.received_offset = PhysicalOffset(self.received_offset + len(data))
        try:
            self._dispatch_whole(file)
        finally:
            self._store.claim.update(self.whole_offset)

    def _file_for(self, offset: PhysicalOffset) -> MappedFile:
        """Return the last file, or the next one if it is full."""
        file = self._log.file
        if file is not None and file.write_position < file.size:
            return file
        if file is not None:
            self._log.expect_reads(file)
            return self._log.next_file()
        if offset % self._files.file_size:
            raise Diverged(
                offset,
                "the master's log begins there, which is not the start of a file",
            )
        self._store.queues.tails.log_start = offset
        self._store.claim.begin_at(offset)
        return self._log.next_file(offset)

    def _dispatch_whole(self, file: MappedFile) -> None:
        """Add the entry of every whole record; the log ends after the last whole
        record.
        """
        end = self.received_offset - file.base_offset
        while file.write_position < end:
            done = self._dispatch.run(file, file.write_position, end, check_crc=True)
            if done.records:
                self._log.last_store_ms = done.store_ms
            file.write_position = done.position
            if done.is_stopped:
                self._place_next(file)
            elif done.status is RecordStatus.BLANK:
                self._pass_blank(file, end)
                return
            elif done.status is RecordStatus.SHORT:
                self._check_rest(file, end)
                return
            elif done.status is not RecordStatus.OK:
                raise Diverged(
                    self.whole_offset, f"there is no record: {reason_of(done.status)}"
                )

    def _place_next(self, file: MappedFile) -> None:
        """Dispatch the record after the last whole record."""
        _, position, [record] = walk_log(
            file, file.write_position, file.size, check_crc=False, limit=1
        )
        placed, queue = self._dispatch.place_record(record)
        if placed is Placed.OVER_AGAIN:
            # created again on the master: its earlier messages are gone there, too
            self._store.delete_topic(record.topic.decode())()
            placed, queue = self._dispatch.place_record(record)
        elif placed is Placed.GAP and queue is not None and not queue.next_offset:
            queue.fill_to(record.queue_offset)
            placed, queue = self._dispatch.place_record(record)
        if placed in (Placed.GAP, Placed.BEHIND):
            assert queue is not None, "only a queue has gaps"
            raise Diverged(
                record.physical_offset,
                f"its record is number {record.queue_offset} of queue "
                f"{record.queue_id} of topic {queue.topic}, which has "
                f"{queue.next_offset} here",
            )
        self._log.last_store_ms = record.store_ms
        file.write_position = position

    def _pass_blank(self, file: MappedFile, end: int) -> None:
        """End the file when its last byte has arrived."""
        size = RecordView(file.read(file.write_position, HEAD_SIZE)).size
        if size != file.size - file.write_position:
            raise Diverged(
                self.whole_offset,
                f"a blank record of {size} bytes does not end a file of {file.size}: "
                "set mappedFileSizeCommitLog to the master's value",
            )
        if end == file.size:
            file.write_position = end

    def _check_rest(self, file: MappedFile, end: int) -> None:
        """Refuse an incomplete record that cannot fit into this file."""
        position = file.write_position
        size = 0
        if end - position >= HEAD_SIZE:
            size = RecordView(file.read(position, HEAD_SIZE)).size
        if size > file.size - position or end == file.size:
            raise Diverged(
                self.whole_offset,
                f"a record of {size} bytes does not end in a file of {file.size}",
            )

    def rewind(self) -> None:
        """Forget the bytes of an incomplete record."""
        file = self._log.file
        if file is not None and self.received_offset > self.whole_offset:
            file.zero(file.write_position, self.received_offset - file.base_offset)
        self.received_offset = self.whole_offset

    # -- the end of the log moves back

    def cut_steps(self, end: PhysicalOffset) -> Iterator[Step]:
        """Truncate the log at `end`, the end of a record, and save the bytes after it
        in `cut/`.

        Yields blocking steps for a worker; the parts between them are for the trio
        thread. No other task uses the store meanwhile: no flush, no index, no cleaner.
        `cuts` then has the removed parts.
        """
        store, files = self._store, self._files
        assert files.min_offset < end <= self.whole_offset, end
        self.rewind()
        mark = CutMark(store.directory.root)
        yield partial(self._set_aside, end)
        yield partial(mark.save, end)
        taken = take_files_after(files, end)
        file = files.files[-1]
        file.write_position = min(end - file.base_offset, file.size)
        self._log.file = file
        store.positions.cut_to(end)
        for queue in list(store.queues):
            if queue.truncate(end):
                yield _do_nothing  # other tasks run between two waits for the disk
        taken += store.index.cut_to(end)
        yield store.compaction.follow_cut
        yield partial(self._remove, taken, end)
        tail = self.tail()
        store_ms = 0 if tail is None else self._log.store_ms_at(tail[0])
        self._log.last_store_ms = store.positions.durable_store_ms = store_ms
        parts = store.checkpoint, store.directory, store.deleted_topics
        yield partial(lower, end, store_ms, *parts)
        yield partial(store.digests.cut_to, end)
        yield mark.clear
        self.received_offset = end
        self._dispatch.refresh_queues()

    def reseed_steps(self, aside: LogBackup) -> Iterator[Step]:
        """Move the whole log to `aside/`, with its queues; the next byte may have any
        offset.

        As with `cut_steps`, no other task works on the store; yields blocking steps.
        """
        store = self._store
        self.rewind()
        yield from store.flush_steps(thorough=True)
        yield aside.prepare
        yield aside.move_files
        taken = take_files_after(self._files, PhysicalOffset(0))
        topics = store.queues.topics()
        for topic in topics:
            store.queues.delete_topic(topic)
            yield _do_nothing  # other tasks run between two steps
        yield partial(store.queues.remove_deleted, set(topics))
        taken += store.index.cut_to(0)
        store.compaction.forget_all()
        store.digests.forget_all()
        store.positions.cut_to(PhysicalOffset(0))
        self._log.last_store_ms = store.positions.durable_store_ms = 0
        yield partial(store.cleaner.release, taken)
        self._log.open_end()
        parts = store.checkpoint, store.directory, store.deleted_topics
        yield partial(lower, PhysicalOffset(0), 0, *parts)
        yield aside.finish
        self.received_offset = PhysicalOffset(0)
        self._dispatch.refresh_queues()

    def _set_aside(self, end: PhysicalOffset) -> None:
        """Copy all bytes after `end`; in a worker."""
        self.cuts = []
        for file in self._files.files:
            position = max(0, end - file.base_offset)
            if position < file.write_position:
                folder = self._store.directory.cut
                cut = set_aside(file, position, folder, "the master has other records")
                self.cuts += [] if cut is None else [cut]

    def _remove(self, taken: list[MappedFile], end: PhysicalOffset) -> None:
        """Remove files and bytes after `end`; in a worker."""
        self._store.cleaner.discard(taken)
        self._files.folders.sync()
        file = self._files.files[-1]
        deadline = time.monotonic() + HOLD_LIMIT_S
        while file.holders and time.monotonic() < deadline:
            time.sleep(HOLD_PAUSE_S)  # a reader still sends bytes that are removed now
        end_last_file(self._files, end)


def _do_nothing() -> None:
    """Do nothing."""
