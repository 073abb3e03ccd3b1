"""A log as one statement sees it: it ends where it ended when the statement began."""

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
"""How far after the end of a log records are looked for, to tell that it is damaged."""
_log: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogSnapshot:
    """Segments and the end of the records; `tail` are the splits of the last one."""

    segments: list[Segment]
    end: int
    tail_base: int
    tail: list[Split]
    kept: SplitCache
    fails_on_loss: bool
    first: int | None = None
    """Where the wanted part begins; None: with the first segment."""

    def beginning_at(self, place: int, broker_name: str) -> "LogSnapshot":
        """The part that an archive, which ends at a place, does not have."""
        if place > self.end:
            raise StoreError(
                f"the archive of {broker_name} has come to {place}, and its log ends "
                f"at {self.end}: they are not of one store"
            )
        return replace(self, first=place)

    def parts(self) -> Iterator[tuple[Segment, list[Split] | Iterator[Split]]]:
        """Each segment with its splits, which are walked to if they are not known.

        A missing segment is an error, or logged.
        """
        first = min_offset(self.segments)
        start = first if self.first is None else self.first
        for segment, at, _ in cut_at_segments(
            self.segments, start, self.end, fail_on_loss=self.fails_on_loss
        ):
            is_tail = segment.base_offset == self.tail_base
            splits = self.tail if is_tail else self.kept.of(segment)
            yield segment, splits if at == segment.base_offset else _after(splits, at)


def _after(splits: Iterable[Split], start: int) -> list[Split]:
    """The splits from a record on."""
    return [
        split._replace(start=max(split.start, start))
        for split in splits
        if split.end > start
    ]


class StoreLog:
    """The log of one store, frozen again for each statement."""

    def __init__(
        self, store: Path, broker_name: str, *, fails_on_loss: bool = True
    ) -> None:
        self.store = store
        self.broker_name = broker_name
        self.kept = SplitCache(store)
        self._fails_on_loss = fails_on_loss
        self._tail_path = ""
        self._tail: list[Split] = []
        self._told_damage = -1
        self._end = -1
        self._seen_s = 0.0

    def freeze(self) -> LogSnapshot:
        """Find where the log ends now."""
        segments = find_segments(self.store)
        base = end = min_offset(segments)
        tail: list[Split] = []
        for segment in reversed(segments):
            tail = self._walked_tail(segment)
            if tail:
                base, end = segment.base_offset, tail[-1].end
                break
        self._settle(end)
        if tail:
            self._check_end(segment, end)
        return LogSnapshot(segments, end, base, tail, self.kept, self._fails_on_loss)

    def _settle(self, end: int) -> None:
        """If a broker may run, wait until copies of records before `end` are whole."""
        if end != self._end:
            self._end, self._seen_s = end, time.monotonic()
        wait_s = self._seen_s + SETTLE_MS / 1000 - time.monotonic()
        if wait_s > 0 and (self.store / "abort").exists():
            time.sleep(wait_s)

    def _walked_tail(self, segment: Segment) -> list[Split]:
        """The splits of the last segment; only what may have grown is walked again."""
        known = self._tail[:-1] if segment.path == self._tail_path else []
        start = known[-1].end if known else segment.base_offset
        tail = [*known, *walk_splits(segment, start, check_crc=True)]
        self._tail_path, self._tail = segment.path, tail
        return tail

    def _check_end(self, segment: Segment, end: int) -> None:
        """Warn once if records come after the end: a broker would cut them off."""
        if end == self._told_damage or end == segment.end_offset:
            return
        with open_segment(segment.path) as descriptor:
            data = os.pread(descriptor, LOOK_AHEAD_BYTES, end - segment.base_offset)
            has_grown = (
                walk_open_segment(descriptor, segment, end, end + 1, True).position
                > end
            )
        found = find_record(data, 1, len(data), base_offset=end) if data else 0
        if found < len(data) and not has_grown:
            self._told_damage = end
            _log.warning(
                "%s is damaged at offset %d: a broker ends its log there, and so do "
                "these tables; records follow from offset %d on",
                segment.path,
                end,
                end + found,
            )


def named_logs(stores: Sequence[str], *, fails_on_loss: bool = True) -> list[StoreLog]:
    """Logs of stores, each given as DIR or NAME=DIR; without a name it is broker-a."""
    logs: dict[str, StoreLog] = {}
    for store in stores:
        name, equals, folder = store.partition("=")
        if not equals or "/" in name:
            name, folder = "broker-a", store
        if name in logs:
            raise ConfigError(
                f"two stores are called {name}: name them, --store NAME=DIR"
            )
        logs[name] = StoreLog(Path(folder), name, fails_on_loss=fails_on_loss)
    return list(logs.values())
