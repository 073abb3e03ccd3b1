"""Plans ranges of the log for tasks, and the end of a micro-batch.

A range ends at a record boundary. A consume queue suggests a boundary, and the planner
checks it; without a suggestion the planner walks over the records. The reader proves
each range: its records must lead from its start to exactly its end.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmq._fastpath.arrow.columns import find_record, walk_chain
from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.layout import QueueEntryLayout
from rmq.core.segments import Segment, is_name
from rmq_spark.segments.commit_log import (
    CHUNK_BYTES,
    QUEUE_ENTRY,
    LostData,
    cut_at_segments,
    find_segments,
    open_segment,
    report_loss,
    walk_open_segment,
)

_HINT_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class SegmentRange:
    """A range of one segment between two record boundaries, in physical offsets."""

    path: str
    base_offset: int
    size: int
    start: int
    end: int
    check_crc: bool = False

    @property
    def file_end(self) -> int:
        """Physical offset of the end of the file; a blank record may precede it."""
        return self.base_offset + self.size


def plan_ranges(
    store: str | Path,
    start: int,
    end: int,
    *,
    split_bytes: int,
    verify_crc: str = "tail",
    fail_on_loss: bool = True,
    use_queues: bool = True,
) -> list[SegmentRange]:
    """Cut [start, end) into ranges of about `split_bytes`, each in one segment.

    `start` and `end` are record boundaries, or ends of segments.
    """
    segments = find_segments(store)
    hints = BoundaryHints(store) if use_queues else None
    ranges: list[SegmentRange] = []
    for segment, first, last in cut_at_segments(
        segments, start, end, fail_on_loss=fail_on_loss
    ):
        at = first
        try:
            cuts = [*_cut_points(segment, first, last, split_bytes, hints), last]
        except LostData:
            report_loss(first, last, fail_on_loss)
            continue
        for cut in cuts:
            ranges.append(
                SegmentRange(
                    segment.path,
                    segment.base_offset,
                    segment.size,
                    at,
                    cut,
                    check_crc=verify_crc == "all",
                )
            )
            at = cut
    if verify_crc == "tail" and ranges:
        tail = ranges[-1].base_offset
        ranges = [replace(r, check_crc=r.base_offset == tail) for r in ranges]
    return ranges


def _cut_points(
    segment: Segment,
    start: int,
    end: int,
    split_bytes: int,
    hints: "BoundaryHints | None",
) -> Iterator[int]:
    """Yield record boundaries after each multiple of `split_bytes` in (start, end)."""
    at = start
    with open_segment(segment.path) as descriptor:
        while True:
            grid = (at // split_bytes + 1) * split_bytes
            if grid >= end:
                return
            cut = hints.find_boundary(descriptor, segment, grid) if hints else None
            if cut is None or not at < cut:
                cut = walk_open_segment(descriptor, segment, at, grid, False).position
            if not grid <= cut < end:
                return
            yield cut
            at = cut


class BoundaryHints:
    """Record boundaries near an offset, found in the longest consume queue.

    An entry is i64 physical offset, i32 record size, i64 tags code.
    """

    def __init__(self, store: str | Path) -> None:
        self._files = self._longest_queue(Path(store) / "consumequeue")

    @staticmethod
    def _longest_queue(root: Path) -> list[Path]:
        queues: dict[Path, list[Path]] = {}
        for path in sorted(root.glob("*/*/*")):
            if is_name(path.name):
                queues.setdefault(path.parent, []).append(path)
        return max(queues.values(), key=len, default=[])

    def find_boundary(
        self, descriptor: int, segment: Segment, place: int
    ) -> int | None:
        """Return a boundary at or after `place` where valid records start, or None."""
        for path in reversed(self._files):
            with path.open("rb") as file:
                count = os.fstat(file.fileno()).st_size // QueueEntryLayout.ENTRY_SIZE
                first = _read_entry(file.fileno(), 0)
                if first is None or first > place:
                    continue
                found = _first_at_or_after(file.fileno(), count, place)
                return self._confirm_record(descriptor, segment, found)
        return None

    def _confirm_record(
        self, descriptor: int, segment: Segment, place: int | None
    ) -> int | None:
        if place is None or not segment.base_offset <= place < segment.end_offset:
            return None
        data = os.pread(descriptor, _HINT_BYTES, place - segment.base_offset)
        found = find_record(data, 0, len(data), base_offset=place)
        return place if found == 0 else None


def _read_entry(descriptor: int, index: int) -> int | None:
    """Return the physical offset of an entry; None if the entry is not written."""
    data = os.pread(
        descriptor, QueueEntryLayout.ENTRY_SIZE, index * QueueEntryLayout.ENTRY_SIZE
    )
    if len(data) < QueueEntryLayout.ENTRY_SIZE:
        return None
    offset, size, _ = QUEUE_ENTRY.unpack(data)
    if size == QueueEntryLayout.FILLER_SIZE:
        return -1
    return offset if size > 0 else None


def _first_at_or_after(descriptor: int, count: int, place: int) -> int | None:
    """Return the first entry at or after `place`, by binary search."""
    low, high = 0, count
    while low < high:
        middle = (low + high) // 2
        offset = _read_entry(descriptor, middle)
        if offset is not None and offset < place:
            low = middle + 1
        else:
            high = middle
    return _read_entry(descriptor, low) if low < count else None


def align(
    store: str | Path, start: int, end: int, *, max_bytes: int, max_records: int | None
) -> int:
    """Return the boundary at which a batch from `start` reaches a limit, or `end`."""
    records, at = 0, start
    for segment, first, last in cut_at_segments(find_segments(store), start, end):
        at = first
        with open_segment(segment.path) as descriptor:
            while at < last:
                data = os.pread(descriptor, CHUNK_BYTES, at - segment.base_offset)
                status, walked, count, *_ = walk_chain(
                    data,
                    0,
                    min(len(data), last - at),
                    base_offset=at,
                    stop_at=max(1, start + max_bytes - at),
                )
                if max_records is not None and records + count >= max_records:
                    return _skip_records(data, at, max_records - records)
                records += count
                at += walked
                if at >= start + max_bytes:
                    return at
                if status is RecordStatus.BLANK or walked == 0:
                    at = last
    return end


def _skip_records(data: bytes, base_offset: int, count: int) -> int:
    """Return the physical offset after `count` records."""
    at = 0
    for _ in range(count):
        at = walk_chain(
            data, at, len(data), base_offset=base_offset, stop_at=at + 1
        ).position
    return base_offset + at
