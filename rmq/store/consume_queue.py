"""ConsumeQueue: the places in the log of the messages of one topic and queue.

Layout: files of one size, named by their byte offset in 20 digits, of 20-byte entries:
i64 physical offset, i32 record size, i64 tags code.  Entry n is at byte 20 * n.
A queue whose first entry is not 0 starts with fillers (0, 0x7FFFFFFF, 0).
Invariants: physical offsets grow; the entry is written in the same append as its
record; `min_offset` <= visible <= `next_offset`, where visible entries lie below the
confirm offset. Crash contract: entries may be missing or point beyond the log; recovery
cuts and refills. The trio thread appends; a worker calls `flush`.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from rmq._fastpath import (
    MappedFile,
    QueueEntryLayout,
    QueueTail,
    read_entry,
    valid_entries_end,
)
from rmq.offsets import QueueOffset
from rmq.store.mapped_files import segment_offsets

ENTRY_SIZE = int(QueueEntryLayout.ENTRY_SIZE)
FILLER_SIZE = int(QueueEntryLayout.FILLER_SIZE)
RECOVERED_FILES = 3
"""Files at the end whose entries are checked at start, as in Java."""


class QueueFiles(Protocol):
    """Maps queue files, up to a limit."""

    def open(self, folder: Path, base: int, *, create: bool = False) -> MappedFile:
        """Map the file that starts at byte `base`."""
        ...

    def ensure(self, file: MappedFile, end: int) -> None:
        """Give the file blocks up to `end`."""
        ...

    def drop(self, folder: Path) -> None:
        """Unmap all files of a folder."""
        ...

    def forget(self, folder: Path, base: int) -> None:
        """Unmap one file."""
        ...


class ConsumeQueue(QueueTail):
    """The entries of one topic and queue. Known in Java as `ConsumeQueue`."""

    __slots__ = (
        "_bases",
        "_file_size",
        "_files",
        "folder",
        "stranded",
    )

    def __init__(
        self, topic: str, queue_id: int, folder: Path, files: QueueFiles, file_size: int
    ) -> None:
        super().__init__(topic, queue_id)
        self.folder = folder
        self.stranded: list[int] = []
        self._files = files
        self._file_size = file_size
        self._bases: list[int] = []

    @property
    def _file_entries(self) -> int:
        return self._file_size // ENTRY_SIZE

    def load(self, durable_offset: int | None = None) -> None:
        """Find the end: the last valid entry of the last files.

        After a crash any page that was not flushed may be missing: this checks all
        files with entries of records at or after `durable_offset`.

        Files after a missing file are `stranded`; their entries can be rebuilt from the
        log.
        """
        bases = segment_offsets(self.folder, self._file_size, has_gaps=True)
        first = bases[0] if bases else 0
        held = itertools.count(first, self._file_size)
        self._bases = [
            base for base, due in zip(bases, held, strict=False) if base == due
        ]
        self.stranded = bases[len(self._bases) :]
        end = self._bases[0] if self._bases else 0
        for base in self._bases[-self._doubtful_count(durable_offset) :]:
            file = self._files.open(self.folder, base)
            valid = valid_entries_end(file)
            file.write_position = valid
            file.assume_flushed(0)
            end = base + valid
            if valid < file.size:
                break
        self._set_end(end // ENTRY_SIZE)
        first = self._bases[0] // ENTRY_SIZE if self._bases else 0
        self.min_offset = QueueOffset(first)

    def _doubtful_count(self, durable_offset: int | None) -> int:
        """Count the files at the end whose entries are checked."""
        count = min(len(self._bases), RECOVERED_FILES)
        if durable_offset is None:
            return count
        while count < len(self._bases):
            offset, size, _ = read_entry(
                self._files.open(self.folder, self._bases[-count]), 0
            )
            if size > 0 and 0 <= offset < durable_offset:
                break
            count += 1
        return count

    def prepare(self) -> MappedFile:
        """Make room for the next entry; `publish` and `LogTail.append` need it."""
        file = self.file
        if file is None or file.is_closed:
            file = self.file = self._open_tail()
        end = file.write_position + ENTRY_SIZE
        if end > file.allocated:
            self._files.ensure(file, end)
        return file

    def reserve(self, count: int) -> None:
        """Make room for `count` entries, so that none of them can fail later."""
        end = (self.next_offset + count) * ENTRY_SIZE
        file = self.prepare()
        self._files.ensure(file, min(file.size, end - file.base_offset))
        for base in range(file.base_offset + file.size, end, self._file_size):
            is_new = base > self._bases[-1]
            file = self._files.open(self.folder, base, create=is_new)
            if is_new:
                self._bases.append(base)
            self._files.ensure(file, min(file.size, end - base))

    def _open_tail(self) -> MappedFile:
        position = self.next_offset * ENTRY_SIZE
        base = position // self._file_size * self._file_size
        is_new = not self._bases or self._bases[-1] < base
        file = self._files.open(self.folder, base, create=is_new)
        if is_new:
            self._bases.append(base)
        file.expect_writes(writing=True)
        file.write_position = position - base
        file.assume_flushed(min(file.flushed_position, file.write_position))
        return file

    def fill_to(self, queue_offset: int) -> None:
        """Write fillers before `queue_offset`: the log no longer has those records."""
        if self.next_offset == 0:
            start = queue_offset // self._file_entries * self._file_entries
            self.min_offset = self.next_offset = QueueOffset(start)
        while self.next_offset < queue_offset:
            self.prepare()
            self.publish(0, FILLER_SIZE, 0)
        self.end_physical = -1

    def entry(self, offset: int) -> tuple[int, int, int]:
        """Read (physical offset, size, tags code) of the entry at `offset`."""
        file, position = self.locate(offset)
        return read_entry(file, position)

    def locate(self, offset: int) -> tuple[MappedFile, int]:
        """Return the file that holds the entry at `offset`, and the position in it."""
        byte = offset * ENTRY_SIZE
        base = byte // self._file_size * self._file_size
        tail = self.file
        if tail is not None and tail.base_offset == base and not tail.is_closed:
            return tail, byte - base
        return self._files.open(self.folder, base), byte - base

    def visible_offset(self, confirm_offset: int) -> QueueOffset:
        """Offset after the last entry whose record lies below `confirm_offset`."""
        if self.end_physical <= confirm_offset:
            return self.next_offset
        offsets = range(self.min_offset, self.next_offset)
        count = bisect_right(
            offsets, confirm_offset, key=lambda offset: sum(self.entry(offset)[:2])
        )
        return QueueOffset(self.min_offset + count)

    def first_at_or_above(self, physical_offset: int) -> int:
        """Return the offset of the first entry whose record starts there or later."""
        offsets = range(self.min_offset, self.next_offset)
        return self.min_offset + bisect_left(
            offsets, physical_offset, key=lambda offset: self.entry(offset)[0]
        )

    def search_time(
        self,
        store_ms: Callable[[int], int],
        timestamp_ms: int,
        end: int,
        *,
        upper: bool,
    ) -> int:
        """Return the offset for a time, see `MessageStore.offset_by_time`."""
        first = self.min_offset

        def time_at(offset: int) -> int:
            return store_ms(self.entry(offset)[0])

        if first >= end:
            return 0 if upper else first
        if upper:
            if timestamp_ms < time_at(first):
                return 0
            return (
                first + bisect_right(range(first, end), timestamp_ms, key=time_at) - 1
            )
        return first + bisect_left(range(first, end), timestamp_ms, key=time_at)

    def skip_removed(self, min_physical_offset: int) -> None:
        """Raise `min_offset` past fillers and records that the log no longer has."""
        while self.min_offset < self.next_offset:
            physical_offset, size, _ = self.entry(self.min_offset)
            if size != FILLER_SIZE and physical_offset >= min_physical_offset:
                return
            self.min_offset = QueueOffset(self.min_offset + 1)

    def clean(self, min_physical: int) -> list[Path]:
        """Raise `min_offset` past records before `min_physical`; return unused files.

        They are removed from this queue, and the caller unlinks them; the last file
        stays.
        """
        if self.end_physical < 0 or self.min_offset >= self.next_offset:
            return []
        if self.end_physical <= min_physical:
            self.min_offset = self.next_offset
        else:
            self.min_offset = QueueOffset(self.first_at_or_above(min_physical))
        assert self.min_offset <= self.next_offset, self.folder
        unused = [
            base
            for base in self._bases[:-1]
            if base + self._file_size <= self.min_offset * ENTRY_SIZE
        ]
        for base in unused:
            self._bases.remove(base)
            self._files.forget(self.folder, base)
        return [self.folder / f"{base:020d}" for base in unused]

    def truncate(self, end_physical: int) -> int:
        """Drop the entries of records at or after `end_physical`; return the count."""
        if self.end_physical <= end_physical:
            return 0
        kept = self.first_at_or_above(end_physical)
        while kept > self.min_offset and sum(self.entry(kept - 1)[:2]) > end_physical:
            kept -= 1
        return self.cut_to(kept)

    def cut_to(self, end: int) -> int:
        """Drop the entries from queue offset `end` on; return the count."""
        assert self.min_offset <= end <= self.next_offset, self.folder
        dropped = self.next_offset - end
        self.next_offset = QueueOffset(end)
        self.clear_behind()
        self._set_end(end)
        return dropped

    def start_over(self) -> int:
        """Drop all entries; return the count.

        For a later record with offset 0: the topic was deleted and created again, and
        its older records are still in the log.
        """
        dropped = self.next_offset - self.min_offset
        self.file = None
        self._files.drop(self.folder)
        for base in self._bases:
            (self.folder / f"{base:020d}").unlink()
        self._bases.clear()
        self.min_offset = self.next_offset = QueueOffset(0)
        self.end_physical = -1
        return dropped

    def clear_behind(self) -> None:
        """Leave only zeros after the last entry.

        After a power cut a lost page can hide older entries after it; they must not
        become valid again when the queue has grown up to them.
        """
        if not self._bases:
            return
        byte = self.next_offset * ENTRY_SIZE
        self.file = None
        surplus = [base for base in self._bases[1:] if base >= byte]
        for base in surplus:
            self._bases.remove(base)
            (self.folder / f"{base:020d}").unlink()
        if surplus:
            self._files.drop(self.folder)
        file = self._files.open(self.folder, self._bases[-1])
        position = byte - file.base_offset
        file.zero(position, file.size)
        file.write_position = position
        file.assume_flushed(min(file.flushed_position, position))

    def _set_end(self, next_offset: int) -> None:
        self.next_offset = QueueOffset(next_offset)
        self.end_physical = -1
        first = self._bases[0] // ENTRY_SIZE if self._bases else 0
        if next_offset > first:
            physical_offset, size, _ = self.entry(next_offset - 1)
            if size != FILLER_SIZE:
                self.end_physical = physical_offset + size
