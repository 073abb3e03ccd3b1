"""Damage: a range of the log that has lost its bytes, and the whole records around it.

The claim records that the log had everything from its start to *promised*.  Damage
begins where the walk finds no record, or where a file is missing.  It ends before the
next whole record, or at *promised*.  `cluster/healing.py` replaces the bytes.
Everything here reads files without a store; it blocks.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.core.errors import StoreError
from rmq.core.offsets import PhysicalOffset
from rmq.core.segments import NAME_DIGITS, is_name
from rmq.store.allocate import FileAllocator
from rmq.store.commit_log import WINDOW_SIZE, CommitLog
from rmq.store.log_folders import LogFolders
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.salvage import is_record, last_record, next_record

_NO_HOST: Final = bytes(8)


class Damage(NamedTuple):
    """A range of the log without its bytes."""

    begin: int
    """The end of the last whole record before it."""

    end: int
    """A whole record begins here, or the log ended here."""

    promised: int
    """The log was complete up to this offset."""

    reason: str
    confirmed: int = 0
    """The group has confirmed all bytes before this offset."""

    @property
    def is_short(self) -> bool:
        """Whether no whole record is known after the damage."""
        return self.end >= self.promised

    def __str__(self) -> str:
        """One clause for people, without the path."""
        if self.is_short:
            what = f"the log is short: it ends at {self.begin}"
        else:
            what = f"the log has a hole from {self.begin} to {self.end}"
        return f"{what} ({self.reason}), and was complete up to {self.promised}"


class LogDamaged(StoreError):
    """The log has lost bytes that it had, and may not be truncated there."""

    def __init__(self, where: str, damage: Damage) -> None:
        super().__init__(f"{where}: {damage}. Nothing was cut")
        self.damage = damage


def reason_of(status: RecordStatus) -> str:
    """Return why a walk ended, in words."""
    return RecordStatus(status).name.lower().replace("_", " ")


class LogFiles:
    """The files of a log that may be damaged, without an open store."""

    def __init__(self, folders: LogFolders, file_size: int) -> None:
        self.folders = folders
        self.file_size = file_size

    def find_bases(self) -> list[int]:
        """Return the start offsets of the files that have the configured length."""
        return sorted(
            int(path.name)
            for path in self.folders.list_files()
            if is_name(path.name) and path.stat().st_size == self.file_size
        )

    def base_of(self, offset: int) -> int:
        """Return the start of the file that has an offset."""
        return offset - offset % self.file_size

    def path_of(self, base: int) -> Path:
        """Return the path of the file that begins at an offset; the file may be
        missing.
        """
        name = f"{base:0{NAME_DIGITS}d}"
        for folder in self.folders.all:
            if (folder / name).exists():
                return folder / name
        return self.folders.folder_for(base, self.file_size) / name

    @contextmanager
    def open(self, base: int) -> Iterator[MappedFile]:
        """Map one file for reading."""
        path = str(self.path_of(base))
        file = MappedFile(path, self.file_size, base_offset=base, writable=False)
        try:
            yield file
        finally:
            file.close()

    def missing(self, start: int, promised: int) -> tuple[int, int] | None:
        """Return the first range of files that should be there, and are not.

        The log began at `start`. A file of another length than the others counts as
        missing. `walk` finds missing files at the end of the log.
        """
        bases = [base for base in self.find_bases() if base >= start]
        expected = start
        for base in bases:
            if expected >= promised:
                return None
            if base > expected:  # it may be a file that was made ahead
                return expected, min(base, promised)
            expected = base + self.file_size
        is_truncated = bases and self.path_of(expected).exists()
        return (expected, promised) if is_truncated and expected < promised else None

    def walk(self, begin: int, until: int) -> tuple[int, str]:
        """Follow complete records from an offset; return the offset of the end of the
        walk, and the reason.

        A blank record leads to the next file. If all records are whole, the walk ends
        at `until` or later.
        """
        bases = self.find_bases()
        base = max((each for each in bases if each <= begin), default=begin)
        while begin < until:
            if base not in bases or begin - base >= self.file_size:
                return begin, "no file"
            with self.open(base) as file:
                status, position = RecordStatus.OK, begin - base
                while (
                    status is RecordStatus.OK
                    and base + position < until
                    and position < file.size
                ):
                    status, position, _ = walk_log(file, position, file.size)
                begin = base + position
                if status is RecordStatus.BLANK:
                    begin = base + file.size
                elif status is not RecordStatus.OK and begin < until:
                    return begin, reason_of(status)
            if begin == base + self.file_size:
                base = begin
        return begin, ""

    def next_whole(self, begin: int, promised: int) -> int:
        """Return the offset of the next complete record, or `promised`.

        A body may look like a record, so the result proves nothing: the caller compares
        the bytes with another broker's bytes.
        """
        for base in self.find_bases():
            if base + self.file_size <= begin or base >= promised:
                continue
            with self.open(base) as file:
                end = min(file.size, promised - base)
                position = next_record(file, max(0, begin + 1 - base))
                while position is not None and position < end:
                    if is_record(file, position, file.size, check_crc=True):
                        return base + position
                    position = next_record(file, position + 1)
        return promised

    def find(self, begin: int, promised: int, confirmed: int) -> Damage | None:
        """Return the first damage at or after the end of a whole record."""
        reached, reason = self.walk(begin, promised)
        if reached >= promised:
            return None
        end = self.next_whole(reached, promised)
        return Damage(reached, end, promised, reason, confirmed)

    def record_before(self, offset: int) -> tuple[int, bytes] | None:
        """Return offset and bytes of the last whole record that ends at an offset.

        A blank record may be between the two. None if there is no record before it.
        """
        base = max((each for each in self.find_bases() if each < offset), default=None)
        if base is None or base + self.file_size < offset:
            return None
        with self.open(base) as file:
            end = min(offset - base, file.size)
            last = last_record(file, end)
            return None if last is None else (base + last, _record(file, last))

    def record_at(self, offset: int) -> tuple[int, bytes] | None:
        """Return the whole record that begins at an offset."""
        base = max((each for each in self.find_bases() if each <= offset), default=None)
        if base is None or base + self.file_size <= offset:
            return None
        with self.open(base) as file:
            data = _record(file, offset - base)
        return (offset, data) if data else None

    def record_after(
        self, offset: PhysicalOffset, promised: int
    ) -> tuple[int, bytes] | None:
        """Return the whole record at an offset, or the next one after it."""
        found = self.record_at(offset)
        if found is None:
            found = self.record_at(self.next_whole(offset, promised))
        return found

    @contextmanager
    def whole_part(self, end: int) -> Iterator[CommitLog]:
        """Open the log before an offset, without a writer."""
        allocator = FileAllocator(WINDOW_SIZE)
        queue = MappedFileQueue(self.folders, self.file_size, allocator)
        with ExitStack() as opened:
            expected = -1
            for base in self.find_bases():
                if base >= end or expected not in (-1, base):
                    break
                file = opened.enter_context(self.open(base))
                file.write_position = min(file.size, end - base)
                queue.files.append(file)
                expected = base + self.file_size
            log = CommitLog(queue, allocator, RecordEncoder(_NO_HOST))
            log.file = queue.files[-1] if queue.files else None
            yield log


def _record(file: MappedFile, position: int) -> bytes:
    """Return the bytes of the whole record at a position; no bytes without such a
    record.
    """
    _, end, records = walk_log(file, position, file.size, limit=1)
    return file.read(position, end - position) if records else b""
