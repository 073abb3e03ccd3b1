from typing_extensions import Buffer, disjoint_base

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.core.offsets import PhysicalOffset, QueueOffset

@disjoint_base
class LogTail:
    """The end of the log, with counters since the start."""

    encoder: RecordEncoder
    file: MappedFile | None
    writer: LogWriter | None
    new_keys: NewKeys | None
    last_store_ms: int
    busy_limit_ms: int
    always_pwrite: bool
    is_writable: bool
    put_messages: int
    put_bytes: int
    def __init__(self, encoder: RecordEncoder) -> None: ...
    @property
    def end_offset(self) -> int:
        """*appended*: where the next record begins, if it fits."""

    def append(
        self,
        queue: QueueTail,
        is_queued: bool,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        properties: str,
        tags_code: int | None,
    ) -> tuple[QueueOffset, PhysicalOffset, PhysicalOffset] | None:
        """Append a record, and its entry if it is queued.

        Returns (queue offset, physical offset, end of the record). None means that log
        or queue has no room and nothing was written. `tags_code` replaces the hash of
        its tags unless it is None. After an OSError nothing was published.
        """

    def append_copies(
        self,
        queues: dict[bytes, QueueTail],
        records: Buffer,
        position: int,
        stored_until_ms: int,
        store_ms: int,
    ) -> tuple[int, int] | None:
        """Append copies of records, each to the queue that its properties name.

        `queues` has REAL_TOPIC, a byte 1 and REAL_QID as keys. Begins at `position` and
        copies at most 64 by one write. Ends before a record that was stored after
        `stored_until_ms`, has another target, would not be queued, or has no room.
        Returns the position and the queue offset after the last one, or None if it
        copied nothing. After an OSError nothing was published.
        """

    def append_timed(
        self,
        queues: dict[bytes, QueueTail],
        records: list[bytes],
        added: list[bytes],
        first: int,
        from_ms: int,
        until_ms: int,
        store_ms: int,
    ) -> int:
        """Append copies of timed records, each to the queue that its properties name.

        `queues` is as for `append_copies`; each copy gets its properties of `added`.
        Begins at index `first` and copies at most 64 by one write. Ends before a record
        whose TIMER_OUT_MS is not within [from_ms, until_ms), or that a timer has
        delivered once. It also ends before one that has another target, would not be
        queued, or has no room. Returns the number of copies. After an OSError nothing
        was published.
        """

    def commit(self, count: int) -> PhysicalOffset:
        """Write the `count` staged records and return the new end offset."""

    def end_file(self) -> None:
        """Append the blank record that ends the file, which has room for it."""

    def mark_touched(self, queue: QueueTail) -> None:
        """Record that a queue has new entries."""

    def take_touched(self) -> list[QueueTail]:
        """Return the queues that got entries since the last call."""
