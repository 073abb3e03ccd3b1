"""The counters of the store, and the struct that reports them."""

from bisect import bisect_left

import msgspec

FLUSH_BOUNDS_S = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5, 1.0, 5.0)


def _no_flushes() -> list[int]:
    return [0] * (len(FLUSH_BOUNDS_S) + 1)


class StoreCounters(msgspec.Struct):
    """Sums since the start; incremented on the message path."""

    put_failed: int = 0
    log_flushes: int = 0
    flush_counts: list[int] = msgspec.field(default_factory=_no_flushes)
    flush_seconds: float = 0.0

    def count_flush(self, seconds: float) -> None:
        """Count the duration of a flush of the log."""
        self.log_flushes += 1
        self.flush_seconds += seconds
        self.flush_counts[bisect_left(FLUSH_BOUNDS_S, seconds)] += 1


class ReadCounts(msgspec.Struct):
    """Pulls that found messages, pulls that found none, and the messages."""

    get_found: int = 0
    get_missed: int = 0
    transferred_messages: int = 0


class StoreStatistics(msgspec.Struct, frozen=True):
    """Figures of the store at one moment; the minimum of an empty log is -1."""

    put_messages: int
    put_bytes: int
    put_failed: int
    get_found: int
    get_missed: int
    transferred_messages: int
    log_flushes: int
    min_physical_offset: int
    end_offset: int
    durable_offset: int
    queue_count: int
    mapped_queue_files: int
    flush_counts: list[int]
    """Flushes of the log by duration, up to each of FLUSH_BOUNDS_S, then above."""

    flush_seconds: float
    boot_ms: int
