"""LeftRing: the ring of a run that did not stop, from which recovery completes the log.

The ring is valid only if `abort` names its generation, because a later run, or a Java
broker, writes another `abort`. After a kill the ring has every byte from *written* on.
After a power cut each of its pages may be old or lost, so that every record is checked.
Invariant: only zero bytes of the log are replaced. Used by recovery, before any other
part uses the store.
"""

import struct

from rmq._fastpath.log.layout import RecordMagic
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import survey_log
from rmq._fastpath.log.tail_ring import TailRing
from rmq.store.data_dir import DataDirectory

_STEP = 256 << 10
"""Bytes that are copied from the ring at a time."""
_STEP_RECORDS = 4096
_COLUMNS = 8
_BLANK = struct.Struct(">II")
_BLANK_MAGIC = int(RecordMagic.MAGIC_BLANK) & 0xFFFFFFFF


def _rows(count: int) -> "memoryview[int]":
    return memoryview(bytearray(8 * count * _COLUMNS)).cast("q", (count, _COLUMNS))


class LeftRing:
    """The end of the log that a kill left in memory."""

    def __init__(self, ring: TailRing) -> None:
        self._ring = ring
        self._many = _rows(_STEP_RECORDS)
        self._one = _rows(1)

    @classmethod
    def find(cls, directory: DataDirectory, notes: list[str]) -> "LeftRing | None":
        """Return the ring of the last run; None if there is no ring, or it belongs to
        another run.
        """
        try:
            return cls(TailRing(str(directory.ring), directory.abort.ring_generation))
        except FileNotFoundError:
            return None
        except ValueError as error:
            notes.append(f"{error}: the ring is ignored")
            return None

    @property
    def written_offset(self) -> int:
        """Offset before which the files of the log have all bytes."""
        return self._ring.written_offset

    def complete(self, file: MappedFile, position: int) -> int:
        """Add the records of the ring to a file, from `position` on; return the number
        of bytes.
        """
        limit = min(file.size - position, self._ring.size)
        left = self._ring.read_leftover(file.base_offset + position, limit)
        at = added = 0
        while left is not None and at < limit:
            part = min(limit, at + _STEP)
            is_blank = not any(file.read(position + at, part - at))
            rows = self._many if is_blank else self._one
            _, end, count = survey_log(left, at, part, rows)
            if not count:
                _, end, count = survey_log(left, at, limit, self._one)
            if not count:
                rest = _BLANK.pack(file.size - position - at, _BLANK_MAGIC)
                if left.read(at, min(_BLANK.size, limit - at)) != rest:
                    return added
                end = limit = at + _BLANK.size
            ours, theirs = left.read(at, end - at), file.read(position + at, end - at)
            if ours != theirs and _is_part(theirs, ours):
                file.pwrite(position + at, ours)
                added += end - at
            at = end
        return added


def _is_part(theirs: bytes, ours: bytes) -> bool:
    """Whether each byte of a part of a file equals the byte of the ring, or is zero."""
    return not any(theirs) or all(
        a in (0, b) for a, b in zip(theirs, ours, strict=True)
    )
