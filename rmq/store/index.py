"""MessageIndex: messages by key, unique key, tags and time.

Layout: files of one size (`log/index_file.pyx`), named by the local time of
their creation in 17 digits.  All but the newest are full.
Threads: one worker runs `build`.  It takes the keys that appends have recorded
(`log/new_keys.pyx`), and reads the log where there are no such keys.  A query runs at
the same time and also scans the records from `next_offset` on, so answers are complete
at any lag.  If these records are many, a worker scans them.
Invariants: every indexed record below `next_offset` has its entries.  A full file is
flushed, and the checkpoint's index time is the end of the last full file.
Crash contract: after a kill or power cut, load keeps only the full files that are older
than the checkpoint.  The worker rebuilds the others from the log.
"""

import re
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from datetime import datetime
from functools import partial
from pathlib import Path

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.index_file import IndexFile, find_in_log, index_file_size
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq.core.clock import Clock
from rmq.core.errors import CorruptLog, StoreError
from rmq.core.files import sync_directory
from rmq.core.offsets import PhysicalOffset
from rmq.store.allocate import FileAllocator
from rmq.store.checkpoint import Checkpoint
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.positions import LogPositions

WINDOW_SIZE = 4 << 20
BUILD_SIZE = 8 << 20
"""Bytes of the log that one step of the worker reads: some milliseconds of work."""

CATCH_UP_S = 0.001
CATCH_UP_SIZE = 128 << 10
"""Time and bytes of indexing on the serving thread, while the lag is at its limit."""

PART_SIZE = 1 << 20
"""Bytes of the ring that are copied at a time."""

FLUSHED_SIZE = 256 << 10
"""Bytes of entries that are written to the disk at a time.

Otherwise the kernel would keep the entries for half a minute, and senders would then
wait for the write of some hundred MiB.
"""

SCANNED_HERE = 256 << 10
"""Bytes of the log without entries that a query reads on the trio thread: 0.1 ms."""

Step = Callable[[], object]
"""A part of a query that takes long; a worker runs it."""

_NAME = re.compile(r"\d{17}")


class MessageIndex:
    """Known in Java as `IndexService`."""

    def __init__(
        self,
        folder: Path,
        log: CommitLog,
        positions: LogPositions,
        config: StoreConfig,
        clock: Clock,
    ) -> None:
        self.files: list[IndexFile] = []
        self.next_offset = 0
        self.full_end_ms = 0
        self._folder = folder
        self._log = log
        self._positions = positions
        self._clock = clock
        self._config = config
        self._slot_count = config.index_slots
        self._entry_limit = config.index_entries
        self._file_size = index_file_size(self._slot_count, self._entry_limit)
        self._allocator = FileAllocator(WINDOW_SIZE)
        self._flush_failed = False
        self._done = 0
        """Keys of the record at `next_offset` that a full file already contains."""
        log.new_keys = NewKeys() if config.index_enabled else None

    # -- start

    def load(self, checkpoint: Checkpoint, *, was_clean: bool) -> list[str]:
        """Map valid files and remove the others; return notes for the report.

        Runs after the log is recovered.
        """
        notes = []
        removed = 0
        self.full_end_ms = checkpoint.index_msg_ms
        for path in sorted(self._folder.iterdir()) if self._folder.is_dir() else ():
            if not _NAME.fullmatch(path.name) or not path.is_file():
                notes.append(f"{path} is no index file and stays untouched")
                continue
            length = path.stat().st_size
            if length not in (0, self._file_size):
                notes.append(
                    f"{path} has {length} bytes, not the {self._file_size} of "
                    "maxHashSlotNum and maxIndexNum; the file stays untouched, and "
                    "rmq indexes the log again"
                )
                continue
            index_file = (
                None if removed or not length else self._map_trusted(path, was_clean)
            )
            if index_file is None:
                path.unlink()
                removed += 1
            else:
                self.files.append(index_file)
        if removed:
            notes.append(f"{removed} index files may be damaged and are rebuilt")
        self._find_start(was_clean=was_clean)
        return notes

    def _map_trusted(self, path: Path, was_clean: bool) -> IndexFile | None:
        """Map a file; None if its entries may be wrong."""
        file = MappedFile(str(path), self._file_size)
        file.expect_writes(writing=True)
        index_file = IndexFile(file, self._slot_count, self._entry_limit)
        try:
            index_file.load()
        except ValueError:
            file.close()
            return None
        is_safe = was_clean or (
            index_file.is_full and index_file.end_ms <= self.full_end_ms
        )
        if not is_safe or index_file.end_offset >= self._log.end_offset:
            file.close()
            return None
        file.assume_allocated(file.size if index_file.is_full else index_file.used_end)
        file.write_position = file.size if index_file.is_full else index_file.used_end
        file.assume_flushed(file.write_position)
        return index_file

    def _find_start(self, *, was_clean: bool) -> None:
        """Set the start of the worker to the first record that may lack entries."""
        start: int = self._log.min_offset
        newest = self.files[-1] if self.files else None
        if newest and newest.entry_count > 1 and newest.end_offset >= start:
            start = newest.end_offset
            # a full file may have only the first keys of its last record
            if was_clean and not newest.is_full:
                start += self._log.record_size_at(PhysicalOffset(start))
        self.next_offset = start

    def cut_to(self, end: int) -> list[MappedFile]:
        """Remove the files with records at or after `end`, the new end of the log.

        The caller unlinks the returned files. The worker, which must not run meanwhile,
        indexes the other records of these files again.
        """
        taken = []
        while self.files and self.files[-1].end_offset >= end:
            taken.append(self.files.pop().file)
        self.full_end_ms = min(self.full_end_ms, self._full_end())
        self._done = 0
        self._find_start(was_clean=False)
        if self._log.new_keys is not None:
            self._log.new_keys.clear()
        return taken

    def _full_end(self) -> int:
        return max((each.end_ms for each in self.files if each.is_full), default=0)

    # -- build, in the worker

    @property
    def is_complete(self) -> bool:
        """True if all stored messages have their entries, also invisible ones."""
        return (
            not self._config.index_enabled or self.next_offset >= self._log.end_offset
        )

    @property
    def lag_bytes(self) -> int:
        """Bytes of the visible log without entries."""
        if not self._config.index_enabled:
            return 0
        return max(0, self._positions.visible - self.next_offset)

    @property
    def is_too_late(self) -> bool:
        """True if the lag is so large that sends must wait for indexing."""
        return self.lag_bytes > self._config.index_max_lag

    def catch_up(self) -> None:
        """Index for CATCH_UP_S on the serving thread, so that sends wait.

        It takes more time in proportion to a lag above the limit: else senders of
        messages with many keys would be faster.
        """
        excess = self.lag_bytes / self._config.index_max_lag
        until_s = time.perf_counter() + CATCH_UP_S * excess
        while self.lag_bytes and time.perf_counter() < until_s:
            self.build(CATCH_UP_SIZE)

    def build(self, max_size: int = BUILD_SIZE) -> None:
        """Index about `max_size` bytes of the visible log.

        While the lag is small, give way to other threads: on few cores, indexing would
        delay replies to senders.
        """
        end_offset = self._positions.visible
        gives_way = self.lag_bytes < self._config.index_max_lag // 2
        stop = min(end_offset, self.next_offset + max_size)
        keys = self._log.new_keys
        while self.next_offset < stop:
            start, done = before = self.next_offset, self._done
            index_file = self._index_file_with_room()
            used_end = index_file.used_end
            if keys is not None and keys.contains(start):
                has_room = len(keys) < keys.capacity // 2
                self.next_offset, self._done = index_file.add_new_keys(
                    keys, start, stop, end_offset, done, gives_way and has_room
                )
            else:
                noted = None if keys is None else keys.discard_before(start)
                limit = stop if noted is None else min(stop, noted)
                self._read_log(index_file, limit, end_offset, gives_way=gives_way)
            index_file.file.write_position = min(
                index_file.used_end, index_file.file.size
            )
            index_file.save()  # Java would continue there after a kill
            _begin_flush(index_file.file, used_end, index_file.file.write_position)
            if index_file.is_full:
                self._finish(index_file)
            elif before == (self.next_offset, self._done):
                break  # the record is not yet durable to its end

    def _read_log(
        self,
        index_file: IndexFile,
        stop: int,
        end_offset: PhysicalOffset,
        *,
        gives_way: bool,
    ) -> None:
        """Index the next part of the log, records that start below `stop`."""
        part_size = PART_SIZE
        while True:
            start = self.next_offset
            lent = self._log.reader.read_extent(start, part_size, is_shared=True)
            if lent is None:
                assert start < self._log.min_offset, start
                self.next_offset, self._done = self._log.min_offset, 0
                return
            extent, end = lent
            base, is_last = extent.base_offset, end >= end_offset
            status, reached, self._done = index_file.add_records(
                extent,
                start - base,
                min(stop, end) - base,
                min(end, end_offset) - base,
                self._done,
                gives_way,
            )
            reached += base
            if status is RecordStatus.BLANK:
                reached = self._log.files.end_of(reached)
            elif status is RecordStatus.SHORT and self._log.reader.ring is not None:
                if reached == start and not is_last:
                    part_size *= 2
                    continue
            elif status is not RecordStatus.OK:
                raise CorruptLog(extent.path, reached, f"no record: {status.name}")
            assert reached >= start, extent.path
            self.next_offset = reached
            return

    def _index_file_with_room(self) -> IndexFile:
        """Return the newest file, with blocks for more entries; a new one if full."""
        if not self.files or self.files[-1].is_full:
            self._start_file()
        index_file = self.files[-1]
        self._allocator.allocate_up_to(
            index_file.file,
            min(index_file.file.size, index_file.used_end + WINDOW_SIZE // 4),
        )
        return index_file

    def _start_file(self) -> None:
        last = self.files[-1] if self.files else None
        path = self._folder / _file_name(self._clock.now_ms())
        if last is not None:
            newest = Path(last.file.path).name
            path = self._folder / max(path.name, f"{int(newest) + 1:017d}")
        try:
            self._folder.mkdir(exist_ok=True)
            while path.exists():
                path = self._folder / f"{int(path.name) + 1:017d}"
            file = MappedFile(str(path), self._file_size, create=True)
            file.expect_writes(writing=True)
        except OSError as error:
            raise StoreError(
                f"cannot create the index file {path}: {error.strerror}"
            ) from error
        index_file = IndexFile(file, self._slot_count, self._entry_limit)
        if last is not None:
            index_file.continue_from(last)
        try:
            self._allocator.allocate_up_to(file, index_file.used_end)
        except StoreError:  # the next attempt starts another file
            file.close()
            path.unlink()
            raise
        self.files.append(index_file)

    def _finish(self, index_file: IndexFile) -> None:
        """Make a full file durable, then move the checkpoint's index time past it.

        After a failed flush the checkpoint stays: a start after a crash rebuilds the
        file.
        """
        index_file.save()
        try:
            sync_directory(self._folder)
            index_file.file.flush()
        except OSError:
            self._flush_failed = True
            raise
        if not self._flush_failed:
            self.full_end_ms = index_file.end_ms

    # -- query

    def query(
        self,
        topic: str,
        key: str,
        *,
        is_tags: bool,
        begin_ms: int,
        end_ms: int,
        end_offset: PhysicalOffset,
        limit: int,
        check: Callable[[int], object],
    ) -> Generator[Step, None, list[PhysicalOffset]]:
        """Return offsets of the newest `limit` messages with the key, oldest first.

        Every candidate is checked in the log: same topic and key, stored in
        [begin_ms, end_ms], below `end_offset`. Before that, `check` gets the offset of
        the candidate. Yields the steps that take long.
        """
        where = topic.encode(), key.encode()
        scan = partial(find_in_log, is_tags=is_tags, begin_ms=begin_ms, end_ms=end_ms)
        found: set[PhysicalOffset] = set()
        for extent, first, last in self._unindexed_parts(self.next_offset, end_offset):
            if len(found) >= limit:
                break
            look = partial(scan, extent, first, last, *where, limit=limit - len(found))
            if last - first <= SCANNED_HERE or not isinstance(extent, MappedFile):
                found.update(look())
                continue
            yield partial(_look_unless_deleted, look, found)
        index_files = self.files[::-1]
        for offset in _find_candidates(
            index_files, where, begin_ms, end_ms, is_tags=is_tags
        ):
            if len(found) >= limit:
                break
            lent = self._log.reader.read_extent(offset, self._log.files.file_size)
            if lent is None or offset >= end_offset or offset in found:
                continue
            check(offset)
            extent, end = lent
            position = offset - extent.base_offset
            end = min(end_offset, end) - extent.base_offset
            found.update(scan(extent, position, end, *where, limit=1, only_first=True))
        return sorted(found)

    @property
    def last_update(self) -> tuple[int, int]:
        """Store time and offset of the newest entry; zeros if there is no entry."""
        if not self.files:
            return 0, 0
        return self.files[-1].end_ms, self.files[-1].end_offset

    def _unindexed_parts(self, start: int, end: int) -> list[tuple[Extent, int, int]]:
        """Return the parts of the log in [start, end), the newest first.

        Each part has its positions; it is valid until the next append.
        """
        parts = []
        log = self._log
        start = max(start, log.min_offset)
        while start < end:
            lent = log.reader.read_extent(start, log.files.file_size)
            assert lent is not None, f"the log has no file for {start}"
            extent, stop = lent
            stop = min(stop, log.files.end_of(start))
            last = min(stop, end)
            parts.append(
                (extent, start - extent.base_offset, last - extent.base_offset)
            )
            start = stop
        return parts[::-1]

    # -- end

    def take_expired(self, min_offset: PhysicalOffset) -> list[MappedFile]:
        """Remove and return files with only deleted records, never the newest file."""
        expired = []
        while len(self.files) > 1 and self.files[0].end_offset < min_offset:
            expired.append(self.files.pop(0).file)
        return expired

    def flush(self) -> None:
        """Write the newest file's header and make the file durable."""
        if self.files:
            assert all(each.is_full for each in self.files[:-1]), self._folder
            self.files[-1].save()
            self.files[-1].file.flush()

    def close(self) -> None:
        """Unmap everything; the caller has flushed."""
        for index_file in self.files:
            index_file.file.close()
        self.files.clear()


def _begin_flush(file: MappedFile, start: int, end: int) -> None:
    """Begin to flush the parts of FLUSHED_SIZE that are complete since `start`."""
    start, end = (at // FLUSHED_SIZE * FLUSHED_SIZE for at in (start, end))
    if start < end:
        file.begin_flush(start, end)


def _look_unless_deleted(
    look: Callable[[], list[PhysicalOffset]], found: set[PhysicalOffset]
) -> None:
    """Add the results of `look`; nothing if its file was deleted during the query."""
    with suppress(ValueError):
        found.update(look())


def _find_candidates(
    index_files: list[IndexFile],
    where: tuple[bytes, bytes],
    begin_ms: int,
    end_ms: int,
    *,
    is_tags: bool,
) -> Iterator[int]:
    """Yield the offsets that the files contain, the newest first."""
    for index_file in index_files:
        if index_file.begin_ms <= end_ms and begin_ms <= index_file.end_ms:
            yield from index_file.find(
                *where, is_tags=is_tags, begin_ms=begin_ms, end_ms=end_ms
            )


def _file_name(now_ms: int) -> str:
    moment = datetime.fromtimestamp(now_ms / 1000).astimezone()
    return f"{moment:%Y%m%d%H%M%S}{now_ms % 1000:03d}"
