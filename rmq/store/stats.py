"""What the store counts, and the record that shows it."""

from dataclasses import dataclass


@dataclass(slots=True)
class StoreCounters:
    """Sums since the start; incremented on the message path."""

    put_failed: int = 0
    get_found: int = 0
    get_missed: int = 0
    transferred_messages: int = 0
    log_flushes: int = 0


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """A picture of the store at one moment; an empty log has its minimum at -1."""

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
    boot_ms: int
