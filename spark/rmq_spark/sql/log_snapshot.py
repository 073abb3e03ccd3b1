"""LogSnapshot: the log of a store as it was when a statement started."""

import logging
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rmq._fastpath.arrow.columns import find_record
from rmq.core.errors import ConfigError, StoreError
from rmq.core.segments import Segment
from rmq_spark.segments.commit_log import (
    SETTLE_MS,
    cut_at_segments,
    find_segments,
    min_offset,
    open_segment,
    walk_open_segment,
)
from rmq_spark.sql.splits import Split, SplitCache, walk_splits

LOOK_AHEAD_BYTES: Final = 4 << 20
"""Number of bytes after the end that are searched for records, to detect damage."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogSnapshot:
    """Segments and the end of the log; `tail` has the splits of the last segment."""

    segments: list[Segment]
    end: int
    tail_base: int
    tail: list[Split]
    kept: SplitCache
    fails_on_loss: bool
    first: int | None = None
    """First physical offset of the scan; None for the first segment."""

    def starting_at(self, place: int, broker_name: str) -> "LogSnapshot":
        """Return the part of the log after its archive, which ends at `place`."""
        if place > self.end:
            raise StoreError(
                f"the archive of {broker_name} reaches offset {place}, but the log "
                f"ends at {self.end}: archive and store do not belong together"
            )
        return replace(self, first=place)

    def segment_splits(self) -> Iterator[tuple[Segment, list[Split] | Iterator[Split]]]:
        """Yield each segment with its splits; walks segments without cached splits.

        With `fails_on_loss` a missing segment is an error; without it the segment is
        logged.
        """
        first = min_offset(self.segments)
        start = first if self.first is None else self.first
        for segment, at, _ in cut_at_segments(
            self.segments, start, self.end, fail_on_loss=self.fails_on_loss
        ):
            is_tail = segment.base_offset == self.tail_base
            splits = self.tail if is_tail else self.kept.splits_of(segment)
            yield (
                segment,
                splits if at == segment.base_offset else _splits_after(splits, at),
            )


def _splits_after(splits: Iterable[Split], start: int) -> list[Split]:
    """Return the splits from a record on."""
    return [
        split._replace(start=max(split.start, start))
        for split in splits
        if split.end > start
    ]


class StoreLog:
    """The log of one store; each statement gets a new snapshot."""

    def __init__(
        self, store: Path, broker_name: str, *, fails_on_loss: bool = True
    ) -> None:
        self.store = store
        self.broker_name = broker_name
        self.kept = SplitCache(store)
        self._fails_on_loss = fails_on_loss
        self._tail_path = ""
        self._tail: list[Split] = []
        self._reported_damage = -1
        self._end = -1
        self._seen_s = 0.0

    def freeze(self) -> LogSnapshot:
        """Return a snapshot with the current end of the log."""
        segments = find_segments(self.store)
        base = end = min_offset(segments)
        tail: list[Split] = []
        for segment in reversed(segments):
            tail = self._walk_tail(segment)
            if tail:
                base, end = segment.base_offset, tail[-1].end
                break
        self._wait_for_writes(end)
        if tail:
            self._check_end(segment, end)
        return LogSnapshot(segments, end, base, tail, self.kept, self._fails_on_loss)

    def _wait_for_writes(self, end: int) -> None:
        """Wait until a running broker has copied all records before `end`."""
        if end != self._end:
            self._end, self._seen_s = end, time.monotonic()
        wait_s = self._seen_s + SETTLE_MS / 1000 - time.monotonic()
        if wait_s > 0 and (self.store / "abort").exists():
            time.sleep(wait_s)

    def _walk_tail(self, segment: Segment) -> list[Split]:
        """Return the splits of the last segment; walks the last split again."""
        known = self._tail[:-1] if segment.path == self._tail_path else []
        start = known[-1].end if known else segment.base_offset
        tail = [*known, *walk_splits(segment, start, check_crc=True)]
        self._tail_path, self._tail = segment.path, tail
        return tail

    def _check_end(self, segment: Segment, end: int) -> None:
        """Warn once if records follow the end, which a broker would truncate."""
        if end == self._reported_damage or end == segment.end_offset:
            return
        with open_segment(segment.path) as descriptor:
            data = os.pread(descriptor, LOOK_AHEAD_BYTES, end - segment.base_offset)
            has_grown = (
                walk_open_segment(descriptor, segment, end, end + 1, True).position
                > end
            )
        found = find_record(data, 1, len(data), base_offset=end) if data else 0
        if found < len(data) and not has_grown:
            self._reported_damage = end
            _log.warning(
                "%s is damaged at offset %d: the log and these tables end there; more "
                "records follow from offset %d on",
                segment.path,
                end,
                end + found,
            )


def named_logs(stores: Sequence[str], *, fails_on_loss: bool = True) -> list[StoreLog]:
    """Return the logs of stores, each DIR or NAME=DIR; the default name is broker-a."""
    logs: dict[str, StoreLog] = {}
    for store in stores:
        name, equals, folder = store.partition("=")
        if not equals or "/" in name:
            name, folder = "broker-a", store
        if name in logs:
            raise ConfigError(f"two stores have the name {name}: use --store NAME=DIR")
        logs[name] = StoreLog(Path(folder), name, fails_on_loss=fails_on_loss)
    return list(logs.values())
