"""Survey: checks every record of the log once, in blocks of numpy rows.

A block belongs to one file; `survey_log` defines its columns.  After damage the
survey continues at the next record that contains its own offset.  The log ends where
zeros begin and only zeros follow.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from rmq._fastpath.log.decode import RecordStatus, check_record
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import survey_log as survey_file
from rmq._fastpath.log.scan import walk_log
from rmq.store.damage import reason_of
from rmq.store.salvage import has_data, is_record, next_record
from rmq.tools.progress import NoProgress, ProgressSink

BLOCK_RECORDS = 1 << 13
PART_SIZE = 64 << 20
"""Bytes between two reports of progress."""

_WITHOUT_ENTRY = 0x80
_TRANSACTION_MASK = 0xC
_PREPARED, _ROLLBACK = 0x4, 0xC


class Column(IntEnum):
    """Columns of a block; see `survey_log`."""

    OFFSET = 0
    SIZE = 1
    STORE_MS = 2
    QUEUE_ID = 3
    QUEUE_OFFSET = 4
    SYS_FLAG = 5
    TAGS = 6
    TOPIC = 7


Block = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Damage:
    """A file and an offset at which the store violates the format."""

    path: str
    offset: int
    reason: str
    is_log: bool = False

    def __str__(self) -> str:
        """One line for people; for the log, the offset is the physical offset."""
        return f"{self.path} at offset {self.offset}: {self.reason}"


@dataclass(slots=True)
class Survey:
    """One walk over the log; iterate `blocks`, then read the results."""

    files: Sequence[MappedFile]
    check_crc: bool = True
    is_live: bool = False
    progress: ProgressSink = field(default_factory=NoProgress)
    damages: list[Damage] = field(default_factory=list)
    start_offset: int = 0
    end_offset: int = 0
    record_count: int = 0

    def record_blocks(self) -> Iterator[tuple[MappedFile, Block]]:
        """Yield blocks of records in order; each is valid until the next one."""
        rows = np.empty((BLOCK_RECORDS, len(Column)), np.int64)
        files = self.files
        self.start_offset = files[0].base_offset if files else 0
        self.end_offset = self.start_offset
        for number, file in enumerate(files):
            if number and file.base_offset != self.end_of(files[number - 1]):
                self._record_damage(file, 0, "the file before it is missing")
            has_more = any(has_data(other, 0) for other in files[number + 1 :])
            for count in self._walk(file, rows, has_more=has_more):
                assert 0 < count <= len(rows), file.path
                self.record_count += count
                yield file, rows[:count]
            if not has_more:
                return

    @staticmethod
    def end_of(file: MappedFile) -> int:
        """Return the offset at which the next file begins."""
        return file.base_offset + file.size

    def _walk(self, file: MappedFile, rows: Block, *, has_more: bool) -> Iterator[int]:
        position = 0
        while position < file.size:
            status, stop, count = self._walk_part(file, position, rows)
            if count:
                yield count
            self.progress.add(stop - position, count)
            self.end_offset = file.base_offset + stop
            position = stop
            if status is RecordStatus.BLANK:
                self._check_blank(file, stop)
                self.end_offset = self.end_of(file)
                return
            if status is not RecordStatus.OK:
                following = self._next_record(file, stop, status, has_more=has_more)
                if following is None:
                    return
                self.progress.add(following - stop)
                position = following

    def _walk_part(
        self, file: MappedFile, position: int, rows: Block
    ) -> tuple[RecordStatus, int, int]:
        """Survey up to the end of a part; a record may extend beyond it."""
        assert position < file.size, file.path
        part = min(file.size, position + PART_SIZE)
        found = survey_file(file, position, part, rows.data, check_crc=self.check_crc)
        status, stop, count = found
        if status is not RecordStatus.SHORT or part == file.size:
            return found
        if stop > position:
            return RecordStatus.OK, stop, count
        return survey_file(
            file, position, file.size, rows[:1].data, check_crc=self.check_crc
        )

    def _check_blank(self, file: MappedFile, position: int) -> None:
        size = int.from_bytes(file.read(position, 4), "big", signed=True)
        rest = file.size - position
        if size != rest:
            self._record_damage(
                file, position, f"blank record of {size} bytes, not {rest}"
            )

    def _next_record(
        self, file: MappedFile, position: int, status: RecordStatus, *, has_more: bool
    ) -> int | None:
        """Return the position of the next record after bytes that are no record; None
        at the end.
        """
        if status is RecordStatus.END and not has_data(file, position):
            if has_more:
                self._record_damage(file, position, "zeros instead of a record")
            return None
        if self.is_live and is_record(file, position, file.size, check_crc=True):
            return position  # the broker was writing this record
        following = next_record(file, position + 1)
        if self.is_live and not has_more and following is None:
            return None
        _, size = check_record(file, position, check_crc=False)
        if status is RecordStatus.BAD_CRC:
            following = position + size
            self.end_offset = file.base_offset + following
        reason = reason_of(status)
        if status is RecordStatus.END:
            reason = "zeros instead of a record"
        self._record_damage(file, position, reason)
        assert following is None or following > position, file.path
        return following

    def _record_damage(self, file: MappedFile, position: int, reason: str) -> None:
        self.damages.append(
            Damage(file.path, file.base_offset + position, reason, is_log=True)
        )


def is_queued(block: Block) -> NDArray[np.bool_]:
    """Mark the records that have an entry in an ordinary queue."""
    flags = block[:, Column.SYS_FLAG]
    state = flags & _TRANSACTION_MASK
    marks: NDArray[np.bool_] = (
        (state != _PREPARED) & (state != _ROLLBACK) & (flags & _WITHOUT_ENTRY == 0)
    )
    return marks


def topic_at(file: MappedFile, position: int) -> str:
    """Read the topic of the record at `position`."""
    _, _, records = walk_log(file, position, file.size, check_crc=False, limit=1)
    return records[0].topic.decode(errors="replace")
