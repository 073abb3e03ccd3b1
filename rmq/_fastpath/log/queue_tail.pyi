from typing import Any, final

from typing_extensions import Buffer, disjoint_base

from rmq.core.offsets import QueueOffset

SIZE_BOUNDS: tuple[int, ...]
"""Bounds of Java's histogram of message sizes, in bytes."""

@final
class TailSet:
    """What the queues of one store share."""

    log_start: int
    def take_unflushed(self, least: int) -> list[Any]:
        """Remove and return the queues with at least `least` unflushed entries."""

    @property
    def uncounted_count(self) -> int:
        """Number of queues with new messages that nobody has counted."""

    def take_uncounted(self, limit: int) -> list[Any]:
        """Remove and return at most `limit` queues with new messages.

        Call `take_counts` of each.
        """

    def take_unseen(self, limit: int) -> list[Any]:
        """Remove and return at most `limit` queues with messages since they were taken
        last.
        """

    @property
    def has_unflushed(self) -> bool:
        """True while a queue waits for its flush."""

    def relist_unflushed(self, queues: list[Any]) -> None:
        """List queues again whose entries were not flushed."""

@disjoint_base
class QueueTail:
    """Where the next message of one queue gets its entry."""

    topic: str
    topic_bytes: bytes
    queue_id: int
    key: tuple[str, int]
    tails: TailSet
    low_offset: int
    low_physical: int
    next_offset: QueueOffset
    end_physical: int
    flushed_offset: int
    is_deleted: bool
    is_watched: bool
    def __init__(
        self, topic: str, queue_id: int, tails: TailSet | None = None
    ) -> None: ...
    def reserve(self, count: int) -> None:
        """Make room for `count` entries, so that none of them can fail."""

    def publish(self, physical_offset: int, size: int, tags_code: int) -> int:
        """Add and count the entry of a record; its queue offset."""

    def truncate_to(self, end: int, end_physical: int) -> None:
        """End before entry `end`; what is before it and not in memory is in files."""

    def count_record(self, size: int, messages: int) -> None:
        """Count a record whose entry its owner keeps, see `ends_at`."""

    def set_ends(self, end: int, flushed: int, end_physical: int) -> None:
        """End at an offset, for an owner that keeps the entries in another form.

        Those before `flushed` are in files; nothing here has any.
        """

    def take_counts(self, sizes: Buffer | None) -> tuple[int, int]:
        """Return (messages, bytes) published since the last call.

        Adds the messages to `sizes` by the class of their size, see SIZE_BOUNDS.
        """

    def entry_in_memory(self, offset: int) -> tuple[int, int, int] | None:
        """(physical offset, size, tags code) of an entry; None if it is in a file."""

    def entries_in_memory(self, offset: int, count: int) -> bytes | None:
        """Copy `count` entries, or those up to the end; None if they are in a file."""

    def unflushed_entries(self) -> bytes:
        """Copy the entries that are only in memory."""

    def mark_flushed(self, end: int) -> None:
        """Note that files have the entries before `end`, and free their memory."""
