"""The counters of the store, and the struct that reports them."""

import msgspec

from rmq.core.offsets import PhysicalOffset


class StoreCounters(msgspec.Struct):
    """Sums since the start; incremented on the message path."""

    put_failed: int = 0


class ReadCounts(msgspec.Struct):
    """Numbers of client reads that found messages, and that found no message."""

    get_found: int = 0
    get_missed: int = 0
    own_read_messages: int = 0
    """Messages that the broker has read for itself."""


class StoreStatistics(msgspec.Struct, frozen=True):
    """Figures of the store at one moment; `min_physical_offset` of an empty log is
    -1.
    """

    put_messages: int
    put_bytes: int
    put_failed: int
    get_found: int
    get_missed: int
    own_read_messages: int
    log_flushes: int
    min_physical_offset: int
    end_offset: PhysicalOffset
    durable_offset: PhysicalOffset
    queue_count: int
    mapped_queue_files: int
    flush_counts: list[int]
    """Flushes of the log by duration, up to each of FLUSH_BOUNDS_S, then above."""

    flush_seconds: float
    boot_ms: int
