from typing_extensions import Buffer, disjoint_base

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.core.offsets import PhysicalOffset, QueueOffset

@disjoint_base
class LogTail:
    """Where the next record goes, and what has been written since the start."""

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
        """Where the next record begins, if it fits."""

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
        """Write a record, and its entry if it is queued.

        Returns (queue offset, physical offset, end of the record), or None without
        room in the log or the queue: nothing was written.  `tags_code` replaces the
        hash of its tags unless it is None.  After an OSError nothing was published.
        """

    def append_copies(
        self,
        queues: dict[bytes, QueueTail],
        records: Buffer,
        position: int,
        stored_until_ms: int,
        store_ms: int,
    ) -> tuple[int, int] | None:
        """Write records again, each for the queue that its properties name.

        `queues` has REAL_TOPIC, a byte 1 and REAL_QID as keys.  Begins at `position`
        and ends before a record that was stored after `stored_until_ms`, has another
        target, would not be queued, or has no room, and after 64 at most.  Returns the
        position and the queue offset that follow the last one, or None if there was
        none; all go by one write.  After an OSError nothing was published.
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
        """Write timed records again, each for the queue that its properties name.

        `queues` as for `append_copies`; each gets its properties of `added`.  Begins at
        the number `first` and ends before a record whose TIMER_OUT_MS is not within
        [from_ms, until_ms), that a timer has delivered once, has another target, would
        not be queued, or has no room, and after 64 at most.  Returns how many these
        are; all go by one write.  After an OSError nothing was published.
        """

    def commit(self, count: int) -> PhysicalOffset:
        """Write what the encoder has staged, `count` records; the new end offset."""

    def end_file(self) -> None:
        """Write the blank record that ends the file, which has room for it."""

    def mark_touched(self, queue: QueueTail) -> None:
        """Tell that a queue has new entries."""

    def take_touched(self) -> list[QueueTail]:
        """Return the queues that got entries since the last call."""
