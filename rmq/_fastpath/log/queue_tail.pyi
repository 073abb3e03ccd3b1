from typing import Any, final

from typing_extensions import Buffer, disjoint_base

from rmq.core.offsets import QueueOffset

SIZE_BOUNDS: tuple[int, ...]
"""Bounds of Java's histogram of message sizes, in bytes."""

@final
class TailSet:
    """State that the queues of one store share."""

    log_start: int
    def take_unflushed(self, least: int) -> list[Any]:
        """Remove and return the queues with at least `least` unflushed entries."""

    @property
    def uncounted_count(self) -> int:
        """Number of queues with messages that `take_counts` has not returned yet."""

    def take_uncounted(self, limit: int) -> list[Any]:
        """Remove and return at most `limit` queues with new messages.

        Call `take_counts` of each.
        """

    def take_unseen(self, limit: int) -> list[Any]:
        """Remove and return at most `limit` queues with messages since last time."""

    @property
    def has_unflushed(self) -> bool:
        """True while a queue waits for its flush."""

    def relist_unflushed(self, queues: list[Any]) -> None:
        """List queues again after their flush has failed."""

@disjoint_base
class QueueTail:
    """The end of one queue, where entries are added."""

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
        """Make room for `count` entries, so that `publish` cannot fail."""

    def publish(self, physical_offset: int, size: int, tags_code: int) -> int:
        """Add and count the entry of a record; return its queue offset."""

    def truncate_to(self, end: int, end_physical: int) -> None:
        """Truncate the queue to `end`; earlier entries that are not in memory are in
        files.
        """

    def count_record(self, size: int, messages: int) -> None:
        """Count a record whose entry its owner keeps, see `ends_at`."""

    def set_ends(self, end: int, flushed: int, end_physical: int) -> None:
        """Set the end of a queue whose entries are kept in another format.

        Entries before `flushed` are in files; none is here.
        """

    def take_counts(self, sizes: Buffer | None) -> tuple[int, int]:
        """Return (messages, bytes) published since the last call.

        Adds the messages to `sizes` by the class of their size, see SIZE_BOUNDS.
        """

    def entry_in_memory(self, offset: int) -> tuple[int, int, int] | None:
        """Return (physical offset, size, tags code), or None if not in memory."""

    def entries_in_memory(self, offset: int, count: int) -> bytes | None:
        """Copy at most `count` entries; None if they are not in memory."""

    def unflushed_entries(self) -> bytes:
        """Copy the entries that are only in memory."""

    def mark_flushed(self, end: int) -> None:
        """Record that files have the entries before `end`, and free their memory."""
