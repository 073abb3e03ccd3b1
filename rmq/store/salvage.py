"""Complete records after damage: found by their magic and their own offset.

A record contains its own offset, so random bytes and copies of old records do not pass
for a record. Recovery uses this module to count the records that it copies to `cut/`;
the offline tools use it, too.
"""

import os
from collections.abc import Iterator

from rmq._fastpath.log.decode import Record, RecordStatus, decode_record
from rmq._fastpath.log.layout import RecordMagic
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import WalkedRecord, walk_log

_MAGICS = tuple(
    int(magic).to_bytes(4, "big")
    for magic in (RecordMagic.MAGIC_V1, RecordMagic.MAGIC_V2)
)
_MAGIC_SIZE = 4
_PART_SIZE = 1 << 20

SECTOR_SIZE = 512
"""Size of the unit that a disk writes completely or not at all."""

TAIL_SIZE = 8 << 20
"""Bytes before an end in which the last record usually begins."""


def has_data(file: MappedFile, position: int) -> bool:
    """Return whether a byte at or after `position` is not zero."""
    return any(True for _ in _used_parts(file, position))


def data_end(file: MappedFile, position: int) -> int:
    """Return the end of the last non-zero byte at or after `position`."""
    end = position
    for end in _used_parts(file, position):  # noqa: B007 - the last one
        pass
    return end


def _used_parts(file: MappedFile, position: int) -> Iterator[int]:
    """Yield the end of the data of each part with data; holes are not read."""
    while True:
        try:
            position = os.lseek(file.fd, position, os.SEEK_DATA)
        except OSError:
            return
        stop = os.lseek(file.fd, position, os.SEEK_HOLE)
        for start in range(position, stop, _PART_SIZE):
            used = file.read(start, min(_PART_SIZE, stop - start)).rstrip(b"\0")
            if used:
                yield start + len(used)
        position = stop


def next_record(
    file: MappedFile,
    position: int,
    end: int | None = None,
    *,
    start_limit: int | None = None,
) -> int | None:
    """Return the position of the first complete record at or after `position`.

    The record begins before `start_limit`, and ends at `end` or earlier. Its body may
    be damaged, because only lengths and own offset are checked.
    """
    end = file.size if end is None else end
    assert end <= file.size, file.path
    stop = end if start_limit is None else min(end, start_limit)
    while position < stop:
        size = min(_PART_SIZE, stop - position) + 2 * _MAGIC_SIZE
        part = file.read(position, min(size, end - position))
        for found in _find_magics(part):
            start = position + found - _MAGIC_SIZE
            if position <= start < stop and is_record(file, start, end):
                return start
        position += max(1, len(part) - 2 * _MAGIC_SIZE + 1)
    return None


def last_record(file: MappedFile, end: int) -> int | None:
    """Return the position of the last record before `end`; only a blank record may
    follow. None if the walk does not reach the end.
    """
    near = next_record(file, max(0, end - TAIL_SIZE), end) or 0
    found = _last_after(file, near, end)
    return found if found is not None else _last_after(file, 0, end)


def _last_after(file: MappedFile, position: int, end: int) -> int | None:
    """Like `last_record`, but `position` may lie inside of a body."""
    last, status = None, RecordStatus.OK
    while status is RecordStatus.OK and position < end:
        status, position, records = walk_log(file, position, end, check_crc=False)
        if records:
            last = records[-1].physical_offset - file.base_offset
    return last if status in (RecordStatus.OK, RecordStatus.BLANK) else None


def has_torn_end(file: MappedFile, position: int) -> bool:
    """Whether a disk has lost the end of a record's properties, which no CRC covers.

    A power cut loses whole sectors: all bytes from a sector's start on are zero.
    """
    _, end, records = walk_log(file, position, file.size, check_crc=False, limit=1)
    if not records:
        return False
    properties: bytes = records[0].properties
    lost = end - len(properties) + len(properties.rstrip(b"\0"))
    return -(-lost // SECTOR_SIZE) * SECTOR_SIZE < end


def whole_records(file: MappedFile, position: int, end: int) -> Iterator[WalkedRecord]:
    """Yield the records in [position, end) whose bodies are undamaged, too."""
    start = next_record(file, position, end)
    while start is not None:
        status, stop, records = walk_log(file, start, end)
        yield from records
        is_between = status is RecordStatus.OK and stop < end
        start = stop if is_between else next_record(file, stop + 1, end)


def count_records(file: MappedFile, position: int, end: int) -> int:
    """Count the `whole_records`."""
    return sum(1 for _ in whole_records(file, position, end))


def records_in(file: MappedFile) -> Iterator[Record]:
    """Yield the decoded `whole_records` of a file that was copied aside."""
    for record in whole_records(file, 0, file.size):
        yield decode_record(file, record.physical_offset - file.base_offset)


def _find_magics(part: bytes) -> list[int]:
    """Return the positions of all magic codes, in order."""
    found = []
    for magic in _MAGICS:
        at = part.find(magic)
        while at >= 0:
            found.append(at)
            at = part.find(magic, at + 1)
    return sorted(found)


def is_record(
    file: MappedFile, start: int, end: int, *, check_crc: bool = False
) -> bool:
    """Return whether a record with its own offset begins at `start`."""
    status, _, records = walk_log(file, start, end, check_crc=check_crc, limit=1)
    return bool(records) and status is RecordStatus.OK
