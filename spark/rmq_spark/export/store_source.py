"""StoreSource: exports the log of a store; positions are physical offsets.

Before it publishes a plan, the source syncs this part of the log, so that a power cut
cannot remove exported messages.  Plan and manifest have the CRC of their last record.
So the source detects a store that does not continue the export.
"""

import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from rmq._fastpath.log.decode import decode_record
from rmq.core.errors import StoreError
from rmq.core.segments import Segment
from rmq_spark.export.manifest import (
    ExportPlan,
    LastRecord,
    LogRange,
    Manifest,
    Plan,
    Settings,
)
from rmq_spark.export.source import DEFAULT_LIMITS, ExportLimits
from rmq_spark.segments import commit_log
from rmq_spark.segments import plan as planning
from rmq_spark.segments.broker_requests import request_end
from rmq_spark.segments.commit_log import LostData
from rmq_spark.segments.plan import SegmentRange
from rmq_spark.segments.reader import ReadSettings, read_range
from rmq_spark.segments.selection import TopicSelection


@dataclass(frozen=True)
class LogSplit:
    """A range of one segment."""

    range: SegmentRange

    @property
    def start(self) -> int:
        """The physical offset of its first record."""
        return self.range.start

    @property
    def end(self) -> int:
        """The physical offset after its last record."""
        return self.range.end

    def read_batches(
        self, reading: ReadSettings, batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows in log order."""
        return read_range(reading, self.range, batch_rows=batch_rows)

    def count_left_out(self, reading: ReadSettings) -> dict[str, int]:
        """Count the messages of the system topics; reads the range again."""
        topics = frozenset(reading.topics.left_out)
        if not topics:
            return {}
        columns = tuple(c for c in reading.columns if c.source == "topic")
        counting = replace(reading, columns=columns, topics=TopicSelection(topics))
        found: Counter[str] = Counter()
        for batch in read_range(counting, replace(self.range, check_crc=False)):
            for pair in pc.value_counts(batch.column(0)).to_pylist():
                found[pair["values"]] += pair["counts"]
        return dict(found)

    def readable_part(self) -> None:
        """Return None: without its segment nothing is readable."""


class StoreSource:
    """The log in the folder of a store."""

    position_unit = "bytes"

    def __init__(
        self, store: str | Path, limits: ExportLimits = DEFAULT_LIMITS
    ) -> None:
        self._store = Path(store).resolve()
        self._limits = limits

    @property
    def name(self) -> str:
        """The folder of the store."""
        return str(self._store)

    def first_position(self) -> int:
        """Return the first physical offset of the log."""
        return commit_log.min_offset(commit_log.find_segments(self._store))

    def end(self, _: Manifest | None = None) -> int:
        """Return the end of the log, from an option, from the broker, or from a walk
        over the records.
        """
        confirmed = self._limits.confirm_offset
        if confirmed is None and self._limits.broker:
            confirmed = request_end(self._limits.broker)
        return commit_log.find_end(self._store, confirmed)

    def plan(
        self, last: Manifest | None, settings: Settings, table: str
    ) -> ExportPlan | None:
        """Return the ranges of the next batch."""
        segments = commit_log.find_segments(self._store)
        end = self.end()
        earliest = commit_log.min_offset(segments)
        start = earliest if last is None else last.end
        if last is not None:
            self.check_continuity(last, table)
            self._check_end(start, end, last.store, table)
        if start >= end:
            return None
        first = max(start, earliest)
        if first > start and not self._limits.allow_loss:
            raise LostData(
                f"the log of {self._store} starts at {earliest}, but the export "
                f"reaches offset {start} only: the broker removed segments before they "
                "were exported; --allow-loss continues without them"
            )
        end = self._batch_end(first, end)
        commit_log.make_durable(segments, first, end)
        ranges = planning.plan_ranges(
            self._store,
            first,
            end,
            split_bytes=self._limits.split_bytes,
            fail_on_loss=not self._limits.allow_loss,
            use_queues=False,
        )
        return ExportPlan(
            seq=0 if last is None else last.seq + 1,
            settings=settings,
            store=self.name,
            start=start,
            end=end,
            last=_last_record(segments, first, end) or (last.last if last else None),
            ranges=[
                LogRange(r.base_offset, r.start, r.end, r.check_crc) for r in ranges
            ],
        )

    def check_continuity(self, exported: Plan | Manifest, table: str) -> None:
        """Compare the last exported record with the log; StoreError if it differs."""
        segments = commit_log.find_segments(self._store)
        last = exported.last
        if last is None or last.offset < commit_log.min_offset(segments):
            return
        data = commit_log.read_bytes(segments, last.offset, last.size)
        if data is None or zlib.crc32(data) != last.crc:
            raise StoreError(
                f"the store {self._store} does not continue the export {table}: its "
                f"record at {last.offset} differs from the one in {exported.store}; "
                "the store was truncated, or is another store"
            )

    def list_splits(self, plan: ExportPlan) -> list[LogSplit]:
        """Return the ranges of the plan whose segments exist."""
        return list(self._iterate_splits(plan))

    def measure_lag(
        self, position: int, end: int, exported_ms: int | None
    ) -> dict[str, Any]:
        """Return the lag in bytes, records, and seconds between the last records."""
        segments = commit_log.find_segments(self._store)
        newest_ms = _store_ms(segments, position, end)
        return {
            "lag_bytes": max(0, end - position),
            "lag_rows": commit_log.count_records(self._store, position, end),
            "lag_seconds": _seconds_between(exported_ms, newest_ms),
        }

    def close(self) -> None:
        """Do nothing: no connection is open."""

    def _iterate_splits(self, plan: ExportPlan) -> Iterator[LogSplit]:
        segments = {s.base_offset: s for s in commit_log.find_segments(self._store)}
        for base, start, end, check_crc in plan.ranges:
            segment = segments.get(base)
            if segment is not None and end <= segment.end_offset:
                yield LogSplit(
                    SegmentRange(
                        segment.path, base, segment.size, start, end, check_crc
                    )
                )

    def _batch_end(self, start: int, end: int) -> int:
        try:
            return planning.align(
                self._store,
                start,
                end,
                max_bytes=self._limits.batch_bytes,
                max_records=None,
            )
        except LostData:
            if self._limits.allow_loss:
                return end
            raise

    def _check_end(self, start: int, end: int, exported: str, table: str) -> None:
        if end < start:
            raise StoreError(
                f"the log of {self._store} ends at {end}, but the export {table} "
                f"reaches offset {start} of {exported}: the store was truncated, or is "
                "another one"
            )


def _last_record(segments: list[Segment], start: int, end: int) -> LastRecord | None:
    offset, data = commit_log.last_record(segments, start, end)
    return LastRecord(offset, len(data), zlib.crc32(data)) if data else None


def _seconds_between(exported_ms: int | None, newest_ms: int | None) -> float | None:
    """Return the lag in seconds; None before the first export, 0 without a lag."""
    if newest_ms is None:
        return 0.0
    return None if exported_ms is None else max(0, newest_ms - exported_ms) / 1000


def _store_ms(segments: list[Segment], start: int, end: int) -> int | None:
    _, data = commit_log.last_record(segments, start, end)
    return decode_record(data).store_ms if data else None
