"""Splits: ranges of a segment with the store times of their records, and their cache.

A split lies between two record boundaries. A split has the smallest and the largest
store time of its records, so that a scan can skip it. A walk reads every record, so
both are right even if a clock was set back.

A segment is closed when a later one has records; it does not change any more.  A file
in the user's cache has the splits of closed segments, with the size, times and inode of
each segment.  If these differ, the segment is walked again.  The cache may be deleted
at any time.
"""

import contextlib
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rmq.core.segments import Segment
from rmq_spark.segments.commit_log import open_segment, walk_open_segment

SPLIT_BYTES: Final = 16 << 20
MAX_FILE_BYTES: Final = 64 << 20
"""Maximum size of a cache file: 400,000 splits (6 TB); a larger file is ignored."""
_EVER_MS: Final = (1 << 63) - 1


class Split(NamedTuple):
    """A range of the log, [start, end), and the store times of its records."""

    start: int
    end: int
    least_ms: int = -_EVER_MS
    greatest_ms: int = _EVER_MS


class _CachedSegment(msgspec.Struct, array_like=True):
    """The splits of a closed segment; `state` is its size, times and inode."""

    state: list[int]
    splits: list[Split]


_Table = dict[str, _CachedSegment]
_decoder: Final = msgspec.json.Decoder(_Table)


def walk_splits(
    segment: Segment, start: int, *, check_crc: bool = False
) -> Iterator[Split]:
    """Yield the splits of a segment from `start` to its last record."""
    with open_segment(segment.path) as descriptor:
        at = start
        while at < segment.end_offset:
            grid = min((at // SPLIT_BYTES + 1) * SPLIT_BYTES, segment.end_offset)
            found = walk_open_segment(descriptor, segment, at, grid, check_crc)
            if found.position > at:
                yield Split(at, found.position, found.least_ms, found.greatest_ms)
            at = found.position
            if at < grid:
                return


class SplitCache:
    """The cached splits of the closed segments of one store."""

    def __init__(self, store: Path, folder: Path | None = None) -> None:
        name = hashlib.sha256(os.fsencode(store.resolve())).hexdigest()[:32]
        self._path = (folder or cache_folder()) / f"{name}.json"
        self.table = self._read()
        self._is_changed = False

    def splits_of(self, segment: Segment) -> list[Split] | Iterator[Split]:
        """Return the splits of a closed segment: a list if they are cached."""
        state = _file_state(segment)
        kept = self.table.get(segment.path)
        if (
            kept is not None
            and kept.state == state
            and _cover_segment(kept.splits, segment)
        ):
            return kept.splits
        return self._walk_closed(segment, state)

    def _walk_closed(self, segment: Segment, state: list[int]) -> Iterator[Split]:
        """Walk a closed segment and cache its splits.

        After damage the last split reaches to the end of the segment, without times.
        Reading it raises the error.
        """
        splits, at = [], segment.base_offset
        for split in walk_splits(segment, at):
            splits.append(split)
            at = split.end
            yield split
        if at < segment.end_offset:
            yield Split(at, segment.end_offset)
        else:
            self.table[segment.path] = _CachedSegment(state, splits)
            self._is_changed = True

    def save(self) -> None:
        """Write new splits; ignores a failure."""
        if not self._is_changed:
            return
        self._is_changed = False
        table = {path: k for path, k in self.table.items() if os.path.exists(path)}
        draft = self._path.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(msgspec.json.encode(table))
            draft.replace(self._path)

    def _read(self) -> _Table:
        try:
            if self._path.stat().st_size > MAX_FILE_BYTES:
                return {}
            return _decoder.decode(self._path.read_bytes())
        except (OSError, msgspec.DecodeError):
            return {}


def cache_folder() -> Path:
    """Return the folder of cache files, below the user's cache."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return Path(home, "rmq", "splits")


def _file_state(segment: Segment) -> list[int]:
    with open_segment(segment.path) as descriptor:
        found = os.fstat(descriptor)
    return [found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino]


def _cover_segment(splits: list[Split], segment: Segment) -> bool:
    """Return whether the splits are contiguous and cover the segment."""
    at = segment.base_offset
    for split in splits:
        if split.start != at or split.end <= at:
            return False
        at = split.end
    return at == segment.end_offset
