"""Whole records behind damage: found by their magic and their own offset.

A record names the place where it stands, so that chance bytes and copies of old records
are not taken for one. Used by recovery, which counts what it keeps aside, and by the
offline tools.
"""

from rmq._fastpath import MappedFile, RecordMagic, RecordStatus, walk_log

_MAGICS = tuple(
    int(magic).to_bytes(4, "big")
    for magic in (RecordMagic.MAGIC_V1, RecordMagic.MAGIC_V2)
)
_MAGIC_SIZE = 4
_PART_SIZE = 1 << 20


def next_record(file: MappedFile, position: int, end: int | None = None) -> int | None:
    """Return where the first whole record at or behind `position` stands.

    Its body may be damaged: lengths and own offset are what counts here.
    """
    end = file.size if end is None else end
    while position < end:
        part = file.read(position, min(_PART_SIZE + _MAGIC_SIZE, end - position))
        for found in _magics(part):
            start = position + found - _MAGIC_SIZE
            if start >= position and _is_record(file, start, end):
                return start
        position += max(1, len(part) - 2 * _MAGIC_SIZE + 1)
    return None


def count_records(file: MappedFile, position: int, end: int) -> int:
    """Count the records in [position, end) whose bodies are whole too."""
    count = 0
    start = next_record(file, position, end)
    while start is not None:
        status, stop, records = walk_log(file, start, end)
        count += len(records)
        more = status is RecordStatus.OK and stop < end
        start = stop if more else next_record(file, max(stop, start + 1), end)
        if not more and start == stop:  # its body is damaged
            start = next_record(file, stop + 1, end)
    return count


def _magics(part: bytes) -> list[int]:
    """Return the places of all magic codes, in order."""
    found = []
    for magic in _MAGICS:
        at = part.find(magic)
        while at >= 0:
            found.append(at)
            at = part.find(magic, at + 1)
    return sorted(found)


def _is_record(file: MappedFile, start: int, end: int) -> bool:
    status, _, records = walk_log(file, start, end, check_crc=False, limit=1)
    return bool(records) and status is RecordStatus.OK
