"""TimerLog: the units of messages that wait for their time, in order of arrival.

Folder `timerlog`, files as in `mapped_files.py`.  A unit has 52 bytes, big-endian:

    0   i32  52
    4   i64  position of the unit before it of the same slot, -1 for the first
    12  i32  bits: 1 always, 2 the message rolls on, 4 it recalls another
    16  i64  when it was written, in ms, a multiple of the precision
    24  i32  delay from then to the slot's time, in ms; -1 day in a mark
    28  i64  offset of the record in the commit log
    36  i32  size of the record
    40  i32  hash of the record's own topic
    44  i64  0

If less than 68 bytes are left in a file, the next unit starts the next file.  A filler
ends the full file: i32 number of the bytes left, i64 0, i32 0xCBD43194, zeros.
Invariant: the offsets of records grow.
Crash contract: bytes after the last whole unit are zeroed at load.
Known in Java as `TimerLog`; one thread at a time writes, a worker may flush.
"""

import struct
from array import array
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.timer_units import walk_units
from rmq.core.files import sync_directory
from rmq.store.allocate import FileAllocator
from rmq.store.log_folders import LogFolders
from rmq.store.mapped_files import MappedFileQueue

UNIT_SIZE: Final = 52
NO_UNIT: Final = -1
PLAIN: Final = 1
ROLLS: Final = 2
RECALLS: Final = 4
WINDOW_SIZE: Final = 1 << 20
MARK_DELAY_MS: Final = -86_400_000
"""Delay of a unit without a message, which only marks its record as taken."""

_MAX_DELAY_MS: Final = (1 << 31) - 1
_UNIT: Final = struct.Struct(">iqiqiqiiq")
_FILLER: Final = struct.Struct(">iqI")
FILLER_SIZE: Final = _FILLER.size
_FILLER_MAGIC: Final = 0xCBD43194
_KNOWN_BITS: Final = 15
_UNITS_AT_ONCE: Final = 20_000
_LOOK_SIZE: Final = 4096
_AHEAD: Final = 64 * UNIT_SIZE
assert _UNIT.size == UNIT_SIZE, "a unit has 52 bytes"


class TimerUnit(NamedTuple):
    """One unit."""

    previous: int
    bits: int
    written_ms: int
    delay_ms: int
    offset: int
    size: int
    topic_hash: int

    @property
    def slot_ms(self) -> int:
        """Time of the slot of this unit."""
        return self.written_ms + self.delay_ms

    @property
    def is_mark(self) -> bool:
        """Whether the unit only marks its record as taken."""
        return self.delay_ms == MARK_DELAY_MS

    def encode(self) -> bytes:
        """Return the bytes of the unit."""
        return _UNIT.pack(UNIT_SIZE, *self, 0)


def write_time(slot_ms: int, now_ms: int, precision_ms: int) -> int:
    """Return `now_ms`, or the nearest time whose delay to the slot fits into the field.

    All three are multiples of the precision. The clock may have been set by decades.

    >>> write_time(60_000, 0, 1_000), write_time(0, 86_400_000, 1_000)
    (0, 86399000)
    """
    longest_ms = _MAX_DELAY_MS // precision_ms * precision_ms
    shortest_ms = MARK_DELAY_MS + precision_ms
    return slot_ms - max(shortest_ms, min(slot_ms - now_ms, longest_ms))


def whole_units(data: bytes) -> Iterator[TimerUnit]:
    """Yield the units in some bytes, up to the first invalid one."""
    for length, *fields, _ in _UNIT.iter_unpack(data):
        unit = TimerUnit(*fields)
        if length != UNIT_SIZE or unit.bits | _KNOWN_BITS != _KNOWN_BITS:
            return
        yield unit


class TimerLog:
    """The files of one log."""

    def __init__(self, folder: Path, file_size: int, allocator: FileAllocator) -> None:
        self._allocator = allocator
        self._folder = folder
        self._files = MappedFileQueue(LogFolders([folder]), file_size, allocator)
        self._units_of_file = (file_size - _FILLER.size) // UNIT_SIZE
        self._synced_files = 0
        assert self._units_of_file > 0, f"no unit fits into {file_size} bytes"

    @property
    def end_offset(self) -> int:
        """Position of the next unit, if the last file has room for it."""
        return self._files.end_offset

    def load(self) -> None:
        """Map the files; `units` and `cut` find their end.

        Units that a power cut has lost are written again from the timer's queue.
        """
        if self._folder.is_dir():
            self._files.load(flushed=0)
        self._synced_files = len(self._files.files)

    def read_units(self) -> Iterator[tuple[int, TimerUnit]]:
        """Yield every whole unit with its position, up to the first invalid one."""
        for file in self._files.files:
            is_whole = yield from self._units_of(file)
            if not is_whole:
                return

    def _units_of(
        self, file: MappedFile
    ) -> Generator[tuple[int, TimerUnit], None, bool]:
        """Yield the units of a file, and return whether it is full."""
        position, end = 0, self._units_of_file * UNIT_SIZE
        while position < end:
            size = min(_UNITS_AT_ONCE * UNIT_SIZE, end - position)
            with file.view(position, size) as part:
                data = bytes(part)
            following = position + size
            for unit in whole_units(data):
                yield file.base_offset + position, unit
                position += UNIT_SIZE
            if position < following:
                return False
        return True

    def cut_to(self, end: int) -> bool:
        """End the log at `end`, after the unit before it; return whether this drops
        bytes.
        """
        files = self._files.files
        drops = False
        while files and files[-1].base_offset > end:
            file = files.pop()
            drops = True
            file.unlink()
            file.close()
        if files:
            last = files[-1]
            last.write_position = position = end - last.base_offset
            if position < last.size:
                with last.view(position, min(_LOOK_SIZE, last.size - position)) as part:
                    drops |= any(bytes(part))
                last.zero(position, last.size)
            last.assume_flushed(0)
        return drops

    def append(self, unit: TimerUnit) -> int:
        """Write a unit and return its position; StoreError if there is no room."""
        files = self._files.files
        file = files[-1] if files else self._files.roll()
        if file.size - file.write_position < UNIT_SIZE + _FILLER.size:
            self._fill(file)
            file = self._files.roll()
        self._allocator.allocate_up_to(file, file.write_position + UNIT_SIZE)
        position = file.base_offset + file.write_position
        file.append(unit.encode())
        return position

    def open_file(self) -> MappedFile | None:
        """Return the last file, with room for some units, for `add_units`.

        None without a file; StoreError if the disk has no room.
        """
        if not self._files.files:
            return None
        file = self._files.files[-1]
        self._allocator.allocate_up_to(
            file, min(file.size, file.write_position + _AHEAD)
        )
        return file

    def _fill(self, file: MappedFile) -> None:
        rest = file.size - file.write_position
        if rest >= _FILLER.size:
            self._allocator.allocate_up_to(file, file.write_position + _FILLER.size)
            file.append(_FILLER.pack(rest, 0, _FILLER_MAGIC))
        file.write_position = file.size

    def unit_at(self, position: int) -> TimerUnit | None:
        """Return the unit at a position; None if there is none."""
        file = self._files.find(position)
        if file is None or position < file.base_offset:
            return None
        start = position - file.base_offset
        if start % UNIT_SIZE or start + UNIT_SIZE > file.write_position:
            return None
        values = _UNIT.unpack(file.read(start, UNIT_SIZE))
        return TimerUnit._make(values[1:8]) if values[0] == UNIT_SIZE else None

    def position_before(self, position: int) -> int | None:
        """Return the position of the unit that was written before the unit at a
        position.
        """
        file = self._files.find(position)
        if file is None or position == self._files.min_offset:
            return None
        if position > file.base_offset:
            return position - UNIT_SIZE
        return position - self._files.file_size + (self._units_of_file - 1) * UNIT_SIZE

    def read_chain(self, last: int, after: int, most: int) -> tuple["array[int]", int]:
        """Return positions of units of a slot, newest first, and where to continue.

        At most `most` units; they end before the unit at `after`.
        """
        found, position = walk_units(self._files.files, last, after, most)
        return array("q", found), position

    def flush(self) -> None:
        """Make all units durable; blocks: for a worker."""
        files = list(self._files.files)
        if len(files) != self._synced_files:
            sync_directory(self._folder)
            self._synced_files = len(files)
        for file in files:
            if file.flushed_position < file.write_position:
                file.flush()

    def drop_before(self, position: int) -> list[MappedFile]:
        """Remove and return the files before `position`, never the newest."""
        files, dropped = self._files.files, []
        while len(files) > 1 and files[1].base_offset <= position:
            dropped.append(files.pop(0))
        self._synced_files = len(files)
        return dropped

    @property
    def first_offset(self) -> int:
        """Start of the first file."""
        return self._files.min_offset

    @property
    def files(self) -> list[MappedFile]:
        """All files, oldest first; the list is the log's own."""
        return self._files.files

    def file_starts(self) -> list[int]:
        """Return the starts of all files."""
        return [file.base_offset for file in self._files.files]

    def close(self) -> None:
        """Unmap the files."""
        self._files.close()
