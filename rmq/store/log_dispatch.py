"""LogDispatch: adds the queue entries of records that are already in the log.

Each of its steps is a `CommitLogDispatcher` in Java.
A put writes record and entry together; a start after a crash and a replica have the
record and add the entry. `QueueDispatcher` adds the entries of plain records.
`place_record` adds the other entries: of a new queue, of a topic with delays or
batches, after a gap. Belongs to the trio thread.

Known in Java as `ReputMessageService`; the ordinary append does this itself, in
`tail.pyx`.
"""

import enum
from collections.abc import Callable, Mapping

from rmq._fastpath.log.dispatch import DispatchResult, QueueDispatcher
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import WalkedRecord
from rmq.core.errors import RequestRejected
from rmq.core.offsets import PhysicalOffset
from rmq.protocol.flags import INNER_BATCH, NOT_QUEUED, TRANSACTION_MASK
from rmq.protocol.topics import may_dispatch, split_lite_queue
from rmq.store.commit_log import CommitLog
from rmq.store.queues.batch_queue import BatchQueue, inner_count
from rmq.store.queues.consume_queue import ConsumeQueue
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.queues.multi_dispatch import (
    LMQ_QUEUE_ID,
    MARK,
    MAX_FILLERS,
    stored_targets,
)
from rmq.store.tags import SCHEDULE_TOPIC, TagsCodes
from rmq.store.tombstone import LOST_BYTES, MARK_AT


class Placed(enum.Enum):
    """The result for one record."""

    ADDED = enum.auto()
    """The record has an entry now."""

    PASSED = enum.auto()
    """The record already has an entry, or must not get one."""

    GAP = enum.auto()
    """Entries before its entry are missing."""

    BEHIND = enum.auto()
    """The queue has another record at this offset."""

    OVER_AGAIN = enum.auto()
    """The queue starts again, because the topic was deleted and created again."""


class LogDispatch:
    """The dispatch of one log."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueues,
        tags: TagsCodes,
        *,
        deleted: Callable[[], Mapping[str, int]],
        add_note: Callable[[str], None],
        has_readers: bool = False,
    ) -> None:
        """`deleted` returns deleted topics, each with an offset of the log.

        Records of the topic before this offset get no entries.
        `add_note` gets a sentence about records that cannot have entries.
        """
        self._log = log
        self._queues = queues
        self._tags = tags
        self._deleted = deleted
        self._add_note = add_note
        self._readers_of = log if has_readers else None
        self._mark = MARK if queues.dispatches_lmq else b""
        self._compiled = QueueDispatcher(self._readers_of, self._mark)

    def refresh_queues(self) -> None:
        """Compute again which queues are plain, and which records get no entry."""
        self._compiled = QueueDispatcher(self._readers_of, self._mark)
        for topic, end in self._deleted().items():
            self._compiled.skip(topic.encode(), end)
        for queue in self._queues:
            self._register_queue(queue)

    def _register_queue(self, queue: ConsumeQueue) -> None:
        if queue.topic_bytes != SCHEDULE_TOPIC and not queue.is_batch:
            self._compiled.add(queue)

    def run(
        self, file: MappedFile, position: int, end: int, *, check_crc: int
    ) -> DispatchResult:
        """Dispatch records of [position, end) until a record needs `place_record`."""
        return self._compiled.run(file, position, end, check_crc=check_crc)

    def place_record(self, record: WalkedRecord) -> tuple[Placed, ConsumeQueue | None]:
        """Add a record's entries; return the result, and its queue if it has one.

        After OVER_AGAIN and GAP nothing is changed.
        """
        placed, queue = self._place_record(record)
        is_done = placed in (Placed.ADDED, Placed.PASSED)
        is_plain = is_done and queue is not None and not queue.is_batch
        if self._mark and is_plain and self._place_further(record):
            placed = Placed.ADDED
        return placed, queue

    def _place_further(self, record: WalkedRecord) -> bool:
        """Add the entries of light message queues; return whether one was missing."""
        if not may_dispatch(record.topic.decode()):
            return False
        has_added = False
        for topic, offset in stored_targets(record.properties):
            if record.physical_offset < self._deleted().get(topic, 0):
                continue
            queue = self._queues.get_or_create(topic, LMQ_QUEUE_ID)
            self._register_queue(queue)
            missing = offset - queue.next_offset
            if record.physical_offset + record.size <= queue.end_physical:
                continue
            if offset == 0 < queue.next_offset and split_lite_queue(topic) is not None:
                queue.start_over()  # the lite topic had expired
                missing = 0
            if not 0 <= missing <= MAX_FILLERS:
                self._add_note(f"{topic}: the log has other entries than its files")
                continue
            if missing:
                queue.fill_to(offset)
            queue.publish(record.physical_offset, record.size, record.tags_code)
            if self._readers_of is not None:
                self._readers_of.mark_touched(queue)
            has_added = True
        return has_added

    def _is_tombstone(self, record: WalkedRecord) -> bool:
        """Whether a record is the tombstone of a lost record."""
        file = self._log.files.find(record.physical_offset)
        if file is None:
            return False
        place = record.physical_offset + MARK_AT - file.base_offset
        return file.read(place, len(LOST_BYTES)) == LOST_BYTES

    @staticmethod
    def _place_tombstone(record: WalkedRecord, queue: ConsumeQueue) -> Placed:
        """Add a filler, unless there is an entry at its queue offset."""
        end = record.queue_offset + inner_count(record.sys_flag, record.properties)
        if not 0 < end - queue.next_offset <= MAX_FILLERS:
            return Placed.PASSED
        queue.fill_to(end)
        return Placed.ADDED

    def _place_record(self, record: WalkedRecord) -> tuple[Placed, ConsumeQueue | None]:
        flags = record.sys_flag
        if flags & TRANSACTION_MASK in NOT_QUEUED:
            return Placed.PASSED, None
        try:
            topic = record.topic.decode()
            if record.physical_offset < self._deleted().get(topic, 0):
                return Placed.PASSED, None
            if flags & INNER_BATCH:
                self._queues.make_batch(topic)
            queue = self._queues.get_or_create(topic, record.queue_id)
            self._register_queue(queue)
        except (UnicodeDecodeError, RequestRejected, AssertionError):
            name = record.topic.decode(errors="replace")
            self._add_note(
                f"records of topic {name!r} queue {record.queue_id} get no entries"
            )
            return Placed.PASSED, None
        if record.physical_offset + record.size <= queue.end_physical:
            return Placed.PASSED, queue
        if self._is_tombstone(record):
            return self._place_tombstone(record, queue), queue
        if record.queue_offset == 0 < queue.next_offset:
            return Placed.OVER_AGAIN, queue
        if record.queue_offset > queue.next_offset:
            return Placed.GAP, queue
        if record.queue_offset < queue.next_offset:
            return Placed.BEHIND, queue
        due = self._tags.due_time(record.topic, record.store_ms, record.properties)
        code = record.tags_code if due is None else due
        if isinstance(queue, BatchQueue):
            count = inner_count(flags, record.properties)
            queue.add(
                PhysicalOffset(record.physical_offset),
                record.size,
                code,
                record.store_ms,
                count,
            )
        else:
            queue.publish(record.physical_offset, record.size, code)
        if self._readers_of is not None:
            self._readers_of.mark_touched(queue)
        return Placed.ADDED, queue
