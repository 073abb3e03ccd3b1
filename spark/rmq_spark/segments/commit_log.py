"""The log of a store: its segments, its end, and walks over its records.

A segment is a file named by the physical offset of its first byte, in 20 digits.  It
ends with a blank record or with fewer than 8 bytes.  The next one starts at its base
offset plus its size.

The log ends at `confirm_offset` if the caller knows it. Without it, the log ends at the
offset at which a walk over the last segment, with CRC, finds no record. A running
broker may be copying records before that end, so the caller waits `SETTLE_MS` until
these copies are complete.
"""

import logging
import os
import struct
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from rmq._fastpath.arrow.columns import walk_chain
from rmq._fastpath.log.decode import RecordStatus
from rmq.core.errors import CorruptLog, StoreError
from rmq.core.segments import Segment, is_name, segments_of

SETTLE_MS: Final = 50
CHUNK_BYTES: Final = 16 << 20
MAX_RECORD_BYTES: Final = 256 << 20
"""Limit of a record; a larger size is damage."""
QUEUE_ENTRY: Final = struct.Struct(">qiq")
"""Physical offset, record size and tags code."""
_TAIL_BYTES: Final = 1 << 20
_WALK_BYTES: Final = 1 << 20
"""Bytes of one read of a walk, which fit into the cache of a core."""
_NEVER_MS: Final = (1 << 63) - 1
_log: Final = logging.getLogger(__name__)


class LostData(StoreError):
    """Messages are missing; `advice` is the option that reads the remaining ones."""

    def __init__(self, what: str, advice: str = "") -> None:
        super().__init__(f"{what} ({advice})" if advice else what)
        self.what = what


def find_segments(store: str | Path) -> list[Segment]:
    """Return the segments of a store, or of a folder of segments, oldest first."""
    folder = log_folder(store)
    try:
        segments = segments_of(folder)
    except OSError as error:
        raise StoreError(f"cannot read {folder}: {error.strerror}") from error
    for one, two in pairwise(segments):
        if one.end_offset > two.base_offset:
            raise StoreError(
                f"{one.path} ends at {one.end_offset}, after the start of {two.path}: "
                "one file belongs to another store, or is damaged; remove this file"
            )
    return segments


def log_folder(store: str | Path) -> Path:
    """Return the folder of the segments; StoreError if there is no such folder."""
    root = Path(store)
    for folder in (root / "commitlog", root):
        if folder.is_dir() and (
            folder is not root or any(map(is_name, os.listdir(root)))
        ):
            return folder
    if not root.exists():
        raise StoreError(f"there is no store at {root}: the folder does not exist")
    raise StoreError(f"{root} is not a store: it has neither commitlog/ nor segments")


def min_offset(segments: list[Segment]) -> int:
    """Return the first physical offset that can be read."""
    return segments[0].base_offset if segments else 0


class open_segment:
    """Context with a descriptor for reading; LostData if the file was removed."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __enter__(self) -> int:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            raise LostData(
                f"{self._path} does not exist any more: the broker removed it before "
                "it was read"
            ) from error
        except OSError as error:
            raise StoreError(f"cannot read {self._path}: {error.strerror}") from error
        return self._descriptor

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)


def find_end(store: str | Path, confirm_offset: int | None = None) -> int:
    """Return the physical offset at which the readable log ends."""
    if confirm_offset is not None:
        return confirm_offset
    end = walked_end(find_segments(store))
    if (Path(store) / "abort").exists():
        time.sleep(SETTLE_MS / 1000)
    return end


def walked_end(segments: list[Segment]) -> int:
    """Return the end of the last segment that has records; checks their CRCs."""
    for segment in reversed(segments):
        start = segment.base_offset
        end = walk_records(segment, start, segment.end_offset, check_crc=True).position
        if end > start:
            return end
    return min_offset(segments)


class WalkedRecords(NamedTuple):
    """The outcome of a walk: its end, the reason, and the store times of the records.

    Without records `least_ms` is greater than `greatest_ms`.
    """

    position: int
    status: RecordStatus
    least_ms: int
    greatest_ms: int


def walk_records(
    segment: Segment, start: int, stop_at: int, *, check_crc: bool = False
) -> WalkedRecords:
    """Walk to the first record boundary at or after `stop_at`, or to the last record.

    A blank record leads to the end of the file.
    """
    with open_segment(segment.path) as descriptor:
        return walk_open_segment(descriptor, segment, start, stop_at, check_crc)


def walk_open_segment(
    descriptor: int, segment: Segment, position: int, stop_at: int, check_crc: bool
) -> WalkedRecords:
    """Walk like `walk_records`, in an open file."""
    base, size = segment.base_offset, _WALK_BYTES
    status, least_ms, greatest_ms = RecordStatus.OK, _NEVER_MS, -_NEVER_MS
    while position < stop_at:
        data = os.pread(descriptor, size, position - base)
        status, walked, _, least, greatest = walk_chain(
            data,
            0,
            len(data),
            base_offset=position,
            check_crc=check_crc,
            stop_at=stop_at - position,
        )
        position += walked
        least_ms, greatest_ms = min(least_ms, least), max(greatest_ms, greatest)
        if status is RecordStatus.BLANK or (
            status is RecordStatus.SHORT and position - base + 8 > segment.size
        ):
            position = segment.end_offset
            break
        if status not in (RecordStatus.OK, RecordStatus.SHORT) or not data:
            break
        if walked == 0:
            if len(data) < size or size >= MAX_RECORD_BYTES:
                break
            size *= 2
    return WalkedRecords(position, status, least_ms, greatest_ms)


def cut_at_segments(
    segments: list[Segment], start: int, end: int, *, fail_on_loss: bool = True
) -> Iterator[tuple[Segment, int, int]]:
    """Yield [start, end) segment by segment.

    With `fail_on_loss` a missing segment is an error; without it the gap is logged and
    skipped.
    """
    at = start
    for segment in segments:
        if segment.end_offset <= at or segment.base_offset >= end:
            continue
        if segment.base_offset > at:
            report_loss(at, segment.base_offset, fail_on_loss)
            at = segment.base_offset
        stop = min(end, segment.end_offset)
        yield segment, at, stop
        at = stop
    if at < end:
        report_loss(at, end, fail_on_loss)


def report_loss(start: int, end: int, fail: bool) -> None:
    """Raise LostData for a missing part of the log, or log a warning."""
    text = f"the log from {start} to {end} is missing: the broker removed the segments"
    if fail:
        raise LostData(
            f"{text}; failOnDataLoss=false or --allow-loss continues after the gap"
        )
    _log.warning("%s; reading continues at %d", text, end)


def last_record(segments: list[Segment], start: int, end: int) -> tuple[int, bytes]:
    """Return offset and bytes of the last record; if there is no record, `end` and no
    bytes.
    """
    for segment in reversed(segments):
        first, stop = max(start, segment.base_offset), min(end, segment.end_offset)
        if first < stop:
            found = _last_of(segment, first, stop)
            if found[1]:
                return found
    return end, b""


def _last_of(segment: Segment, start: int, end: int) -> tuple[int, bytes]:
    with open_segment(segment.path) as descriptor:
        at = before = start
        while end - at > _TAIL_BYTES:
            data = os.pread(descriptor, CHUNK_BYTES, at - segment.base_offset)
            near = max(1, min(len(data), end - at) - _TAIL_BYTES)
            walked = walk_chain(
                data, 0, len(data), base_offset=at, stop_at=near
            ).position
            if walked == 0:
                break
            before, at = at, at + walked
        return _step_to_last(descriptor, segment, before if at == end else at, end)


def _step_to_last(
    descriptor: int, segment: Segment, at: int, end: int
) -> tuple[int, bytes]:
    data = os.pread(descriptor, end - at, at - segment.base_offset)
    position, last = 0, b""
    place = at
    while at + position < end:
        _, after, count, *_ = walk_chain(
            data, position, len(data), base_offset=at, stop_at=position + 1
        )
        if not count:
            break
        place, last = at + position, data[position:after]
        position = after
    return place, last


def read_bytes(segments: list[Segment], offset: int, size: int) -> bytes | None:
    """Return bytes of the log; None if no segment has them."""
    for segment in segments:
        if segment.base_offset <= offset and offset + size <= segment.end_offset:
            with open_segment(segment.path) as descriptor:
                return os.pread(descriptor, size, offset - segment.base_offset)
    return None


def make_durable(segments: list[Segment], start: int, end: int) -> None:
    """Sync the segments of [start, end), which the broker may not have flushed yet."""
    for segment in segments:
        if segment.end_offset > start and segment.base_offset < end:
            with open_segment(segment.path) as descriptor:
                os.fsync(descriptor)


def count_records(store: str | Path, start: int, end: int) -> int:
    """Return the number of records in [start, end)."""
    total = 0
    for segment, first, last in cut_at_segments(
        find_segments(store), start, end, fail_on_loss=False
    ):
        with open_segment(segment.path) as descriptor:
            at = first
            while at < last:
                data = os.pread(descriptor, CHUNK_BYTES, at - segment.base_offset)
                _, walked, count, *_ = walk_chain(
                    data, 0, min(len(data), last - at), base_offset=at
                )
                total += count
                at = at + walked if walked else last
    return total


def bad_record(path: str, offset: int, status: RecordStatus, reason: str) -> CorruptLog:
    """Return the error for bytes that are no valid record."""
    text = reason or _REASONS.get(status, status.name)
    return CorruptLog(
        path, offset, f"{text}; corruptRecords=skip or --skip-corrupt skips it"
    )


_REASONS: Final = {
    RecordStatus.BLANK: "the segment ends here, before the range does",
    RecordStatus.END: "no record was written here, before the range ends",
    RecordStatus.SHORT: "the record reaches beyond the range",
    RecordStatus.BAD_MAGIC: "no record starts here",
    RecordStatus.BAD_SIZE: "the size of the record is too small",
    RecordStatus.BAD_LENGTHS: "the lengths in the record do not add up to its size",
    RecordStatus.BAD_CRC: "the CRC of the body is wrong",
    RecordStatus.BAD_OFFSET: "the record belongs to another offset of the log",
}
