"""ConsumeQueue: the physical offsets of the messages of one topic and queue.

Layout: files of one size, named by their byte offset in 20 digits, of 20-byte entries:
i64 physical offset, i32 record size, i64 tags code.  Entry n is at byte 20 * n.
A queue whose first entry is not 0 starts with fillers (0, 0x7FFFFFFF, 0).
A file has blocks only for entries that were written, and its whole size for Java.
Invariants: physical offsets grow; an entry is published with its record, in memory, see
`log/queue_tail.pyx`; `QueueFlush` writes the entry to a file later; `min_offset` <=
visible <= `next_offset`, where visible entries lie below the confirm offset.
Crash contract: entries may be missing or point beyond the log; recovery truncates and
refills.
Belongs to the trio thread; a worker calls only the functions that are marked so.
"""

import os
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rmq._fastpath.log.layout import QueueEntryLayout
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_file import (
    clear_entries,
    find_entries_end,
    read_entry_at,
    write_entries,
)
from rmq._fastpath.log.queue_tail import QueueTail, TailSet
from rmq._fastpath.log.scan import read_entry
from rmq.core.errors import CorruptLog
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.core.segments import is_name
from rmq.store.queues.queue_files import QueueFiles

ENTRY_SIZE = int(QueueEntryLayout.ENTRY_SIZE)
FILLER_SIZE = int(QueueEntryLayout.FILLER_SIZE)

_ENTRY = struct.Struct(">qiq")

NO_OFFSET: Final = PhysicalOffset((1 << 63) - 1)
"""Greater than every offset in the log."""

FileWrite = tuple[bytes, int, bytes, bool]
"""Path, position, entries, and whether the file is new; see `write_entries`."""


class ConsumeQueue(QueueTail):
    """The entries of one topic and queue. Known in Java as `ConsumeQueue`."""

    __slots__ = ("_bases", "_files", "_folder", "has_more_data", "stranded")

    entry_size = ENTRY_SIZE
    is_batch = False
    """Whether an entry may have several messages, see `batch_queue.py`."""

    def __init__(
        self,
        topic: str,
        queue_id: int,
        folder: str,
        files: QueueFiles,
        tails: TailSet | None = None,
    ) -> None:
        super().__init__(topic, queue_id, tails)
        self.stranded: Sequence[int] = ()
        """Files after a missing file; their entries can be rebuilt from the log."""

        self.has_more_data = False
        """True: files have data after the last entry that `load` found."""

        self._folder = folder
        self._files = files
        self._bases: list[int] = []

    @property
    def folder(self) -> Path:
        """The folder with the files."""
        return Path(self._folder)

    @property
    def file_count(self) -> int:
        """Number of files."""
        return len(self._bases)

    def _path(self, base: int) -> str:
        return f"{self._folder}/{base:020d}"

    # -- start

    def load(
        self, known_end: int = 0, durable_offset: PhysicalOffset = NO_OFFSET
    ) -> None:
        """Find the end: the last valid entry of the last files.

        After a crash any page that was not flushed may be missing: only entries before
        `known_end`, and of records before `durable_offset`, are certain.
        """
        size = self._files.file_size
        if not self._find_files():
            return
        self.low_offset = self._bases[0] // ENTRY_SIZE
        self.low_physical = PhysicalOffset(-1)
        number = self._first_doubtful(known_end, durable_offset)
        end, last, last_size = self._bases[number], -1, -1
        for base in self._bases[number:]:
            known = max(0, known_end - base // ENTRY_SIZE)
            valid, self.has_more_data, _, last, last_size = find_entries_end(
                os.fsencode(self._path(base)), size, known, durable_offset
            )
            end = base + valid
            if valid < size:
                break
        if known_end * ENTRY_SIZE > end:
            self.load(0, durable_offset)
            return
        self.has_more_data |= base < self._bases[-1]
        self._end_at(end // ENTRY_SIZE, last, last_size)

    def _find_files(self) -> bool:
        """Collect the files before the first missing file; return whether there are
        any.
        """
        size = self._files.file_size
        bases = self._list_files()
        if not bases:
            return False
        held = range(bases[0], bases[0] + len(bases) * size, size)
        count = sum(base == due for base, due in zip(bases, held, strict=True))
        self._bases, self.stranded = bases[:count], bases[count:]
        return True

    def _list_files(self) -> list[int]:
        """Return the start offsets of the files, and check name and length of each."""
        try:
            names = sorted(os.listdir(self._folder))
        except FileNotFoundError:
            return []
        bases: list[int] = []
        empty = ""
        for name in names:
            path = f"{self._folder}/{name}"
            if not is_name(name):
                if os.path.isdir(path):
                    continue
                raise CorruptLog(path, 0, "its name is not an offset of 20 digits")
            length = os.stat(path).st_size
            if empty or length not in (0, self._files.file_size):
                raise CorruptLog(
                    empty or path,
                    0,
                    f"it has {0 if empty else length} bytes, the configured size is "
                    f"{self._files.file_size}",
                )
            if length:
                bases.append(int(name))
            else:
                empty = path
        if empty:
            os.unlink(empty)  # a crash came after it was created
        return bases

    def _first_doubtful(self, known_end: int, durable_offset: PhysicalOffset) -> int:
        """Return the number of the first file whose entries are not all certain."""
        size = self._files.file_size
        number = len(self._bases) - 1
        if known_end:
            before = known_end * ENTRY_SIZE - 1 - self._bases[0]
            return max(0, min(number, before // size))
        while number:
            path = os.fsencode(self._path(self._bases[number]))
            offset, entry_size = read_entry_at(path, size, 0)
            if entry_size > 0 and 0 <= offset < durable_offset:
                break
            number -= 1
        return number

    def _end_at(self, end: int, last: int, last_size: int) -> None:
        """End the queue before an entry. `last` and `last_size` are offset and size of
        the record of the entry before it; if `last` is -1, this entry is read.
        """
        self.truncate_to(end, -1)
        if last < 0 and end > self.low_offset:
            last, last_size, _ = self.entry_at(QueueOffset(end - 1))
        if end > self.low_offset and last_size != FILLER_SIZE:
            self.end_physical = PhysicalOffset(last + last_size)

    # -- flush

    def file_writes(self, most: int) -> tuple[QueueOffset, list[FileWrite]]:
        """Return the writes of at most `most` unflushed entries, with copies of them,
        and the offset after these entries.
        """
        entries = self.unflushed_entries(most)
        size, start = self._files.file_size, self._byte_of(self.flushed_offset)
        at, end = start, start + len(entries)
        writes = []
        while at < end:
            base = at - at % size
            stop = min(end, base + size)
            part = entries[at - start : stop - start]
            is_new = not self._bases or base > self._bases[-1]
            writes.append((os.fsencode(self._path(base)), at - base, part, is_new))
            at = stop
        return self._offset_of(end), writes

    def record_flushed(self, end: int) -> None:
        """Record that the entries before `end` are durable in files."""
        size = self._files.file_size
        first = self._byte_of(self.flushed_offset) // size * size
        for base in range(first, self._byte_of(end), size):
            if not self._bases or base > self._bases[-1]:
                self._bases.append(base)
        self.mark_flushed(end)

    # -- entries

    def _byte_of(self, offset: int) -> int:
        """Return the byte position of the first entry at or after an offset, over all
        files.
        """
        return offset * ENTRY_SIZE

    def _offset_of(self, byte: int) -> QueueOffset:
        """Return the offset of the entry at a byte position over all files."""
        return QueueOffset(byte // ENTRY_SIZE)

    def start_before(self, offset: QueueOffset) -> int:
        """Return the offset of the entry before `offset`."""
        return offset - 1

    def start_after(self, offset: QueueOffset) -> int:
        """Return the offset of the entry after the one at `offset`."""
        return offset + 1

    def fill_to(self, queue_offset: int) -> int:
        """Add fillers before `queue_offset`, because the log no longer has these
        records.

        Returns their number.
        """
        if self.next_offset == 0:
            file_entries = self._files.file_size // ENTRY_SIZE
            start = queue_offset // file_entries * file_entries
            self.low_offset = start
            self.truncate_to(start, -1)
        count = queue_offset - self.next_offset
        for _ in range(count):
            self.publish(0, FILLER_SIZE, 0)
        self.low_physical = self.end_physical = PhysicalOffset(-1)
        return count

    def entry_at(self, offset: QueueOffset) -> tuple[PhysicalOffset, int, int]:
        """Read (physical offset, size, tags code) of the entry at `offset`."""
        found = self.entry_in_memory(offset)
        if found is None:
            file = self._map(offset)
            found = read_entry(file, offset * ENTRY_SIZE - file.base_offset)
        return found

    def last_entries(self, limit: int) -> tuple[int, bytes]:
        """Return the first queue offset and the entries of the last file.

        Only the last entry if the file has more than `limit`; the file stays unmapped.
        """
        assert self.flushed_offset == self.next_offset, self._folder
        end, size = self._byte_of(self.next_offset), self._files.file_size
        base = (end - 1) // size * size
        first = max(base // ENTRY_SIZE, self.low_offset)
        if self.next_offset - first > limit:
            first = self.next_offset - 1
        start = self._byte_of(first)
        with open(self._path(base), "rb", buffering=0) as file:
            return first, os.pread(file.fileno(), end - start, start - base)

    def replace_entry(
        self, offset: QueueOffset, physical_offset: PhysicalOffset, size: int, code: int
    ) -> None:
        """Write an entry of the files again, durably; called only at a start."""
        self.write_entry(offset, physical_offset, size, code)
        if offset == self.next_offset - 1:
            self._end_at(self.next_offset, physical_offset, size)

    def write_entry(self, offset: int, place: int, size: int, tags_code: int) -> None:
        """Write an entry of the files again, durably. For a worker."""
        byte, file_size = self._byte_of(offset), self._files.file_size
        position = byte % file_size
        entry = _ENTRY.pack(place, size, tags_code)
        path = os.fsencode(self._path(byte - position))
        [error] = write_entries([(path, position, entry, False)], [], file_size)
        if error:
            raise OSError(error, os.strerror(error), os.fsdecode(path))

    def read_once(self, offset: QueueOffset) -> tuple[int, int]:
        """Read (physical offset, size) of an entry and leave its file unmapped.

        It costs a third of `entry_at` if no other entry of the file is read.
        """
        found = self.entry_in_memory(offset)
        if found is not None:
            return found[:2]
        size = self._files.file_size
        position = offset * ENTRY_SIZE % size
        path = self._path(offset * ENTRY_SIZE - position)
        return read_entry_at(os.fsencode(path), size, position)

    def file_of(self, offset: int) -> MappedFile | None:
        """Return the file that holds the entry at `offset`; None if it is in memory."""
        if self.entry_in_memory(offset) is not None:
            return None
        return self._map(offset)

    def read_entries(self, offset: QueueOffset, count: int) -> bytes | memoryview:
        """Return at most `count` entries from `offset` on, at least one."""
        found = self.entries_in_memory(offset, count)
        if found is not None:
            return found
        file = self._map(offset)
        position = offset * ENTRY_SIZE - file.base_offset
        count = min(count, self.flushed_offset - offset)
        return file.view(position, min(file.size - position, count * ENTRY_SIZE))

    def _map(self, offset: int) -> MappedFile:
        size = self._files.file_size
        base = offset * ENTRY_SIZE // size * size
        return self._files.open(self._path(base), base)

    @property
    def min_offset(self) -> QueueOffset:
        """Offset of the first entry whose record the log still has.

        Java sets it in `correctMinOffset`.
        """
        start = self.tails.log_start
        if self.low_physical < start:
            self._raise_minimum(start)
        return QueueOffset(self.low_offset)

    def _raise_minimum(self, start: int) -> None:
        """Skip fillers and records before `start`."""
        low = self.next_offset
        if self.end_physical > start:
            low = QueueOffset(self._first_at_or_above(start))
        assert low <= self.next_offset, self._folder
        self.low_offset = low
        self.low_physical = NO_OFFSET
        if low < self.next_offset:
            self.low_physical = PhysicalOffset(self.entry_at(low)[0])

    def visible_offset(self, confirm_offset: PhysicalOffset) -> QueueOffset:
        """Offset after the last entry of a record below `confirm_offset`."""
        if self.end_physical <= confirm_offset:
            return self.next_offset
        offsets = range(self.min_offset, self.next_offset)
        count = bisect_right(
            offsets,
            int(confirm_offset),
            key=lambda offset: sum(self.entry_at(QueueOffset(offset))[:2]),
        )
        return QueueOffset(self.min_offset + count)

    def _first_at_or_above(self, physical_offset: int) -> int:
        """Return the offset of the first entry whose record starts at this position or
        later.
        """

        def record_start(offset: int) -> int:
            start, size, _ = self.entry_at(QueueOffset(offset))
            return -1 if size == FILLER_SIZE else start

        if record_start(self.low_offset) >= physical_offset:
            return self.low_offset
        offsets = range(self.low_offset, self.next_offset)
        return self.low_offset + bisect_left(offsets, physical_offset, key=record_start)

    def search_time(
        self, log: LogReader, timestamp_ms: int, end: int, *, upper: bool
    ) -> int:
        """Return the offset for a time, see `MessageStore.offset_by_time`."""
        first = self.min_offset
        if first >= end:
            return 0 if upper else first
        starts = self._part_starts(first, end)
        number = 0
        if len(starts) > 1:
            bisect = bisect_right if upper else bisect_left
            number = bisect(
                starts,
                timestamp_ms,
                lo=1,
                key=lambda at: log.store_ms_at(self.entry_at(QueueOffset(at))[0]),
            )
            number -= 1
        start = starts[number]
        stop = end if start == starts[-1] else starts[number + 1]
        file = self._map(start) if start < self.flushed_offset else None
        found = log.search_time(self, file, start, stop, timestamp_ms, upper=upper)
        if upper:
            return found - 1 if found > first else 0
        return found

    def _part_starts(self, first: int, end: int) -> list[int]:
        """Return the first offset of each file, and of the memory, before `end`."""
        starts = [first]
        flushed = self.flushed_offset
        if self._bases and first < flushed:
            step = self._files.file_size // ENTRY_SIZE
            starts += range(first - first % step + step, min(flushed, end), step)
            if first < flushed < end:
                starts.append(flushed)
        return starts

    # -- removal

    def first_used_file(self, start: int) -> int:
        """Return the start of the first file with a record at or after `start`.

        The last file always counts as used.  For a worker.
        """
        size = self._files.file_size
        for base in list(self._bases[:-1]):
            path = os.fsencode(self._path(base))
            offset, entry_size = read_entry_at(path, size, size - self.entry_size)
            if entry_size != FILLER_SIZE and not 0 <= offset + entry_size <= start:
                return base
        return self._bases[-1]

    def drop_files(self, before: int) -> list[str]:
        """Forget files that start before a byte; return their paths, to be unlinked."""
        paths = [self._path(base) for base in self._bases if base < before]
        del self._bases[: len(paths)]
        for path in paths:
            self._files.unmap_file(path)
        if self._bases:
            self._begin_at(self._bases[0])
        return paths

    def _begin_at(self, base: int) -> None:
        """Record that the first file starts at this byte."""
        first = base // ENTRY_SIZE
        if self.low_offset < first:
            self.low_offset, self.low_physical = first, PhysicalOffset(-1)

    def truncate(self, end_physical: PhysicalOffset) -> int:
        """Drop the entries of records at or after `end_physical`; return the count."""
        if self.end_physical <= end_physical:
            return 0
        kept = self._first_at_or_above(end_physical)
        while (
            kept > self.low_offset
            and sum(self.entry_at(QueueOffset(kept - 1))[:2]) > end_physical
        ):
            kept -= 1
        return self.cut_to(kept)

    def cut_to(self, end: int) -> int:
        """Drop the entries from queue offset `end` on; return the count."""
        assert self.low_offset <= end <= self.next_offset, self._folder
        dropped = self.next_offset - end
        was_flushed = self.flushed_offset
        self._end_at(end, -1, -1)
        if end < was_flushed:
            self.clear_after()
        return dropped

    def start_over(self) -> int:
        """Drop all entries; return the count.

        It is called for a later record with offset 0. This means that the topic was
        deleted and created again, while its older records are still in the log.
        """
        dropped = self.next_offset - self.low_offset
        for path in self.drop_files(NO_OFFSET):
            os.unlink(path)
        self.truncate_to(0, -1)
        self.low_offset, self.low_physical = 0, NO_OFFSET
        return dropped

    def clear_after(self) -> None:
        """Leave only zeros in the files after the last flushed entry.

        After a power cut, older entries can follow a lost page. These entries must not
        become valid again when the queue has grown up to them.
        """
        byte = self._byte_of(self.flushed_offset)
        for base in [base for base in self._bases[1:] if base >= byte]:
            self._bases.remove(base)
            self._files.unmap_file(self._path(base))
            os.unlink(self._path(base))
        if self._bases:
            last = self._bases[-1]
            path = os.fsencode(self._path(last))
            clear_entries(path, self._files.file_size, byte - last)
        self.has_more_data = False
