"""CompactedQueue: the messages of one queue of a compaction topic.

Known in Java as `CompactionLog` with `SparseConsumeQueue`.

Layout, as Java has it: pairs of files with one name, the offset of the first byte in
this log, 20 digits.

* `compaction/compactionLog/<topic>/<queue id>/`: records as in the commit log; the
  field of the physical offset has the offset in this log. A blank record ends a file.
* `compaction/compactionCq/<topic>/<queue id>/`: an entry of 46 bytes for each record,
  in the layout of `batch_queue.py`. An entry with the offset -1 ends a file; zeros
  follow.

Invariants: queue offsets grow, with gaps; a file has all records of its entries.
Names may have gaps: a compaction writes its files from 0 on, in `compacting/`.
All files of a queue have the sizes of its first files, even if the keys change later.
Crash contract: only the newest pair of files may be torn: its entries without a record
are removed at load. `replacing` names the files of a compaction that is complete; a
start renames the remaining files. One worker at a time writes. `parts` and their counts
are replaced in one step, so readers on the trio thread need no lock.
"""

import os
import shutil
import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.layout import RecordMagic
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import WalkedRecord, walk_log
from rmq.core.files import replace_file, sync_directory
from rmq.core.offsets import QueueOffset
from rmq.core.segments import is_name
from rmq.store.not_in_memory import NotInMemory
from rmq.store.queues.batch_queue import BATCH_ENTRY_SIZE, NOT_COMPACTED, BatchEntry
from rmq.store.salvage import has_torn_end

_ENTRY: Final = struct.Struct(">qiqqqhii")
_BLANK: Final = struct.Struct(">iI")
_BLANK_MAGIC: Final = int(RecordMagic.MAGIC_BLANK) & 0xFFFFFFFF
_END_ENTRY: Final = _ENTRY.pack(-1, 0, 0, 0, 0, 0, -1, 0)
_RECORD_HEAD: Final = struct.Struct(">i4x4x4x4xqq")
"""Size, queue offset and physical offset of a record."""

_PHYSICAL_AT: Final = 28
_MARK: Final = "replacing"
COMPACTING: Final = "compacting"
WALKED_AT_ONCE: Final = 4_096


class Part:
    """One pair of files; `count` entries are complete."""

    __slots__ = ("base", "count", "entries", "log", "log_end")

    def __init__(
        self, log: Path, entries: Path, sizes: tuple[int, int], *, create: bool = False
    ) -> None:
        self.base = int(log.name)
        log_size, entries_size = sizes
        self.log = MappedFile(str(log), log_size, base_offset=self.base, create=create)
        self.entries = MappedFile(str(entries), entries_size, create=create)
        for file in (self.log, self.entries):
            file.assume_allocated(file.size)  # writes are system calls
        self.count = 0
        self.log_end = 0

    def entry_at(self, number: int) -> BatchEntry:
        """Return an entry; it may touch the disk."""
        data = self.entries.read(number * BATCH_ENTRY_SIZE, BATCH_ENTRY_SIZE)
        return BatchEntry._make(_ENTRY.unpack(data))

    def load(self, *, was_clean: bool) -> None:
        """Find the end of the valid entries, and drop entries without a record.

        After a crash every record is checked.
        """
        most = self.entries.size // BATCH_ENTRY_SIZE
        self.count = bisect_left(
            range(most), True, key=lambda number: not self.entry_at(number).is_valid
        )
        if not was_clean:
            self.count = min(self.count, self._count_whole())
        while self.count and not self._has_record(self.entry_at(self.count - 1)):
            self.count -= 1
        self.log_end = 0
        if self.count:
            self.log_end = self.entry_at(self.count - 1).end_physical - self.base

    def _count_whole(self) -> int:
        """Return the number of complete records at the beginning of the log."""
        count = position = last = 0
        records: Sequence[WalkedRecord] = ()
        status = RecordStatus.OK
        while status is RecordStatus.OK and position < self.log.size:
            status, position, records = walk_log(
                self.log, position, self.log.size, limit=WALKED_AT_ONCE
            )
            count += len(records)
            if records:
                last = records[-1].physical_offset - self.base
        return count - bool(count and has_torn_end(self.log, last))

    def _has_record(self, entry: BatchEntry) -> bool:
        at = entry.physical_offset - self.base
        if not 0 <= at <= self.log.size - entry.size:
            return False
        found = _RECORD_HEAD.unpack(self.log.read(at, _RECORD_HEAD.size))
        return found == (entry.size, entry.first, entry.physical_offset)

    def record(self, entry: BatchEntry) -> bytes:
        """Return the record of an entry."""
        return self.log.read(entry.physical_offset - self.base, entry.size)

    def first_from(self, offset: QueueOffset) -> int:
        """Return the number of the first entry at or after a queue offset."""
        return bisect_left(
            range(self.count),
            int(offset),
            key=lambda number: self.entry_at(number).first,
        )

    def has_room(self, size: int) -> bool:
        """Whether another record fits, together with the ends of both files."""
        end = (self.count + 1) * BATCH_ENTRY_SIZE
        return (
            end < self.entries.size
            and self.log_end + size + _BLANK.size <= self.log.size
        )

    def append(self, record: bytes, tags_code: int, store_ms: int) -> None:
        """Write a record and its entry, not durably."""
        size, first, _ = _RECORD_HEAD.unpack_from(record)
        place = self.base + self.log_end
        data = bytearray(record)
        data[_PHYSICAL_AT : _PHYSICAL_AT + 8] = place.to_bytes(8, "big")
        entry = _ENTRY.pack(
            place, size, tags_code, store_ms, first, 1, NOT_COMPACTED, 0
        )
        self.log.pwrite(self.log_end, bytes(data))
        self.entries.pwrite(self.count * BATCH_ENTRY_SIZE, entry)
        self.log_end += size
        self.count += 1

    def end(self) -> None:
        """End both files."""
        at = self.count * BATCH_ENTRY_SIZE
        if at + BATCH_ENTRY_SIZE <= self.entries.size:
            self.entries.pwrite(at, _END_ENTRY)
        left = self.log.size - self.log_end
        if left >= _BLANK.size:
            self.log.pwrite(self.log_end, _BLANK.pack(left, _BLANK_MAGIC))

    def keep_first(self, count: int) -> None:
        """Keep the first entries only."""
        kept = count * BATCH_ENTRY_SIZE
        self.count = count
        self.log_end = self.entry_at(count - 1).end_physical - self.base if count else 0
        self.entries.pwrite(kept, bytes(self.entries.size - kept))

    def sync(self) -> None:
        """Wait for the disk."""
        os.fdatasync(self.log.fd)
        os.fdatasync(self.entries.fd)

    def unlink(self) -> None:
        """Remove both files; readers that have them may continue."""
        Path(self.log.path).unlink(missing_ok=True)
        Path(self.entries.path).unlink(missing_ok=True)


class Found(NamedTuple):
    """Records of a read, and the offset for the next read."""

    records: list[bytes]
    next_offset: QueueOffset


class CompactedQueue:
    """Known in Java as `CompactionLog`."""

    def __init__(self, log: Path, entries: Path, sizes: tuple[int, int]) -> None:
        """`sizes` are bytes of a log file and of a file of entries."""
        self.log_folder = log
        self.entries_folder = entries
        self.parts: tuple[Part, ...] = ()
        self.copied_offset = 0
        """Queue offset before which all messages of the ordinary queue have been
        read.
        """

        self.is_deleted = False
        """True after the topic was deleted: a step that runs writes to nothing."""

        self._sizes = sizes
        self._unsynced: set[Part] = set()

    # -- start

    def load(self, *, was_clean: bool) -> list[str]:
        """Find the files; return sentences about anomalies."""
        notes: list[str] = []
        self._finish_replacement()
        logs, entries = _names(self.log_folder), _names(self.entries_folder)
        for name in logs ^ entries:
            folder = self.log_folder if name in logs else self.entries_folder
            aside = folder / f"{name}.alone"
            (folder / name).replace(aside)
            notes.append(f"{folder / name} has no counterpart: it was renamed")
        parts = []
        for name in sorted(logs & entries):
            files = self.log_folder / name, self.entries_folder / name
            sizes = files[0].stat().st_size, files[1].stat().st_size
            if all(sizes):
                self._sizes = sizes
                parts.append(Part(*files, sizes))
        for number, part in enumerate(parts, 1):
            part.load(was_clean=was_clean or number < len(parts))
        self.parts = tuple(parts)
        self.copied_offset = self.end_offset
        return notes

    def move_aside(self) -> None:
        """Rename the folders of an earlier queue, which are not open; blocks.

        A topic was deleted and created again, and a kill has left its files.
        """
        for folder in (self.log_folder, self.entries_folder):
            if folder.exists():
                aside = folder.with_name(f"{folder.name}.earlier")
                shutil.rmtree(aside, ignore_errors=True)
                folder.rename(aside)

    def remove_files(self) -> None:
        """Remove the files of a step after the topic was deleted; blocks."""
        for folder in (self.log_folder, self.entries_folder):
            shutil.rmtree(folder, ignore_errors=True)

    # -- reading

    @property
    def min_offset(self) -> int:
        """Queue offset of the first message; -1 without any."""
        for part in self.parts:
            if part.count:
                return part.entry_at(0).first
        return -1

    @property
    def end_offset(self) -> int:
        """Queue offset after the last message; 0 without any."""
        for part in reversed(self.parts):
            if part.count:
                return part.entry_at(part.count - 1).end
        return 0

    def entries_from(self, offset: QueueOffset) -> Iterator[tuple[Part, BatchEntry]]:
        """Yield the entries from a queue offset on."""
        for part in self.parts:
            count = part.count
            if count and part.entry_at(count - 1).first >= offset:
                for number in range(part.first_from(offset), count):
                    yield part, part.entry_at(number)

    def read(
        self,
        offset: QueueOffset,
        max_messages: int,
        max_bytes: int,
        *,
        tag_codes: tuple[int, ...] | None,
        max_examined: int,
        may_wait: bool,
    ) -> Found:
        """Return messages from a queue offset on, at least one if there is one.

        With `may_wait` false, files that only the disk has raise `NotInMemory`.
        """
        if not may_wait:
            self._require_entries()
        size, next_offset = 0, offset
        wanted: list[tuple[Part, BatchEntry]] = []
        for number, (part, entry) in enumerate(self.entries_from(offset)):
            is_full = len(wanted) >= max_messages or size + entry.size > max_bytes
            if number >= max_examined or (is_full and wanted):
                break
            next_offset = QueueOffset(entry.end)
            if tag_codes is None or entry.tags_code in tag_codes:
                wanted.append((part, entry))
                size += entry.size
        else:
            next_offset = QueueOffset(max(next_offset, self.copied_offset))
        if not may_wait:
            _require_records(wanted)
        records = [part.record(entry) for part, entry in wanted]
        return Found(records, next_offset)

    def search_time(self, timestamp_ms: int, found: int, *, upper: bool) -> int:
        """Return the offset for a time in this queue together with the ordinary queue.

        `found` is the result in the ordinary queue; the meaning is as in
        `offset_by_time`.
        """
        last, search = 0, bisect_right if upper else bisect_left
        for part in self.parts:
            count = part.count
            number = search(
                range(count), timestamp_ms, key=lambda n: part.entry_at(n).store_ms
            )
            if number < count and not upper:
                return part.entry_at(number).first
            if number:
                last = part.entry_at(number - 1).first
        if upper:
            return found if found >= self.copied_offset else last
        return max(found, self.copied_offset)

    def _require_entries(self) -> None:
        missing = [
            (part.entries, 0, part.count * BATCH_ENTRY_SIZE)
            for part in self.parts
            if part.count
            and not part.entries.is_resident(0, part.count * BATCH_ENTRY_SIZE)
        ]
        if missing:
            raise NotInMemory(missing)

    # -- writing

    def append(self, record: bytes, tags_code: int, store_ms: int) -> None:
        """Add a record that is newer than all other records."""
        part = self.parts[-1] if self.parts else None
        if part is None or not part.has_room(len(record)):
            if part is not None:
                part.end()
            part = self._roll(part)
        part.append(record, tags_code, store_ms)
        self._unsynced.add(part)

    def _roll(self, part: Part | None) -> Part:
        base = 0 if part is None else part.base + part.log.size
        made = make_part(self.log_folder, self.entries_folder, base, self._sizes)
        self.parts = (*self.parts, made)
        return made

    def sync(self) -> None:
        """Make all added records durable."""
        while self._unsynced:
            part = self._unsynced.pop()
            part.sync()
        for folder in (self.log_folder, self.entries_folder):
            if folder.is_dir():
                sync_directory(folder)

    def truncate(self, offset: QueueOffset) -> None:
        """Remove messages from a queue offset on: the commit log has lost them."""
        kept = list(self.parts)
        while kept and (not kept[-1].count or kept[-1].entry_at(0).first >= offset):
            kept.pop().unlink()
        self.parts = tuple(kept)
        if kept:
            kept[-1].keep_first(kept[-1].first_from(offset))
            self._unsynced.add(kept[-1])
        self.copied_offset = min(self.copied_offset, offset)

    def replace(self, old: Iterable[Part], new: Iterable[Part]) -> None:
        """Replace old parts by the parts of a compaction, which are in
        `compacting/`.
        """
        old, new = list(old), list(new)
        for part in new:
            part.sync()
        for folder in (self.log_folder, self.entries_folder):
            sync_directory(folder / COMPACTING)
        mark = {
            "old": [part.base for part in old],
            "new": [part.base for part in new],
        }
        replace_file(self.log_folder / _MARK, msgspec.json.encode(mark))
        rest = [part for part in self.parts if part not in old]
        self._finish_replacement()
        moved = []
        for part in new:
            name = f"{part.base:020d}"
            files = self.log_folder / name, self.entries_folder / name
            opened = Part(*files, self._sizes)
            opened.count, opened.log_end = part.count, part.log_end
            moved.append(opened)
        self.parts = (*moved, *rest)

    def _finish_replacement(self) -> None:
        """Rename and remove the files of a compaction that is complete."""
        try:
            text = (self.log_folder / _MARK).read_bytes()
        except FileNotFoundError:
            self._remove_unfinished()
            return
        mark = msgspec.json.decode(text, type=dict[str, list[int]])
        for folder in (self.log_folder, self.entries_folder):
            for base in mark["new"]:
                source = folder / COMPACTING / f"{base:020d}"
                if source.exists():
                    source.replace(folder / source.name)
            for base in set(mark["old"]) - set(mark["new"]):
                (folder / f"{base:020d}").unlink(missing_ok=True)
            sync_directory(folder)
        (self.log_folder / _MARK).unlink()
        self._remove_unfinished()

    def _remove_unfinished(self) -> None:
        for folder in (self.log_folder / COMPACTING, self.entries_folder / COMPACTING):
            for name in _names(folder):
                (folder / name).unlink()


def make_part(log: Path, entries: Path, base: int, sizes: tuple[int, int]) -> Part:
    """Create the files that begin at an offset."""
    for folder in (log, entries):
        folder.mkdir(parents=True, exist_ok=True)
    name = f"{base:020d}"
    return Part(log / name, entries / name, sizes, create=True)


def _names(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    return {
        path.name for path in folder.iterdir() if path.is_file() and is_name(path.name)
    }


def _require_records(wanted: Iterable[tuple[Part, BatchEntry]]) -> None:
    missing = []
    for part, entry in wanted:
        position = entry.physical_offset - part.base
        if not part.log.is_resident(position, entry.size):
            missing.append((part.log, position, entry.size))
    if missing:
        raise NotInMemory(missing)
