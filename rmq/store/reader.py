"""StoreReader: messages by queue, by offset in the log, by time, by key.

Every reader stops at the confirm offset: the durable offset under SYNC_FLUSH, the end
of the log under ASYNC_FLUSH. A pull has limits of messages and bytes. The limits are
larger in the newest part of the log, which is likely in memory, than in older parts.
The first message always fits. Call from the trio thread.
"""

# tidy: long — one class: every way to read the store

import struct
from bisect import bisect_left
from collections.abc import (
    Callable,
    Collection,
    Generator,
    Iterable,
    Iterator,
    Sequence,
)
from typing import Final, TypedDict

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.handlers.pull_table import PullTable
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.scan import QueueScan, scan_queue
from rmq.core.errors import RecordDamaged, RemoteProtocolError, StoreClosed
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.records import StoredMessage, decode_stored_at
from rmq.store.commit_log import CommitLog
from rmq.store.compaction.compacted_queue import CompactedQueue, Found
from rmq.store.compaction.compaction_store import CompactionStore
from rmq.store.config import StoreConfig
from rmq.store.durability import Durability
from rmq.store.index import MessageIndex, Step
from rmq.store.log_digests import BadBlock, LogDigests
from rmq.store.not_in_memory import NotInMemory
from rmq.store.queues.batch_queue import BatchQueue
from rmq.store.queues.consume_queue import ENTRY_SIZE, ConsumeQueue
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.results import Boundary, GetResult, GetStatus
from rmq.store.stats import ReadCounts
from rmq.store.wrong_entries import WrongEntries

_ENTRY = struct.Struct(">qiq")
_TAGS_CODE = struct.Struct(">12xq")
assert _TAGS_CODE.size == ENTRY_SIZE, "a queue entry ends with its tags code"

_FIRST: Final = QueueOffset(0)
_NO_BATCH: Final = QueueOffset(-1)


class StoreReader:
    """The reading half of a `MessageStore`."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex,
        durability: Durability,
        compaction: CompactionStore,
        digests: LogDigests,
        wrong_entries: WrongEntries,
    ) -> None:
        self._digests = digests
        self._wrong = wrong_entries
        self._compaction = compaction
        self._config = config
        self._log = log
        self._queues = queues
        self._index = index
        self._durability = durability
        self._positions = durability.positions
        self._counts = ReadCounts()
        self._tables: list[PullTable] = []
        self._memory_window = config.memory_window

    def min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the first offset of a queue; 0 if it never had a message."""
        queue = self._queues.get(topic, queue_id)
        compacted = self._compaction.find(topic, queue_id)
        if compacted is not None and compacted.min_offset >= 0:
            return QueueOffset(compacted.min_offset)
        return queue.min_offset if queue else _FIRST

    def reported_min_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the first offset as Java reports it.

        It is -1 for a queue of batches that never had a message.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None and topic in self._queues.batch_topics:
            return _NO_BATCH
        return self.min_offset(topic, queue_id)

    def max_offset(self, topic: str, queue_id: int) -> QueueOffset:
        """Return the offset after the last visible message; 0 if there was none."""
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return _FIRST
        return queue.visible_offset(self._positions.visible)

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: QueueOffset,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        tag_codes: tuple[int, ...] | None = None,
        may_wait: bool = True,
        is_own: bool = False,
    ) -> GetResult:
        """Read messages of a queue from `offset` on; `tag_codes` None means all tags.

        Without `may_wait` records that only the disk has raise `NotInMemory`.  With
        `is_own` the broker reads for itself.
        """
        if not self._durability.is_open:
            raise StoreClosed(f"{self._config.root_dir} is closed")
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            self._counts.get_missed += not is_own
            low = self.reported_min_offset(topic, queue_id)
            return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, _FIRST, low, _FIRST)
        confirm = self._positions.visible
        low, high = queue.min_offset, queue.visible_offset(confirm)
        compacted = self._compaction.find(topic, queue_id)
        if compacted is not None and offset < min(high, compacted.copied_offset):
            found = self._read_compacted(
                compacted,
                offset,
                max_messages,
                max_bytes,
                tag_codes=tag_codes,
                may_wait=may_wait,
            )
            self._count_read(len(found.records), is_own=is_own)
            return _compacted_result(found, compacted, high)
        if not low <= offset < high:
            self._counts.get_missed += not is_own
            return _out_of_range(offset, low, high)
        count, size = self._limits(self._is_hot(queue.entry_at(offset)[0]))
        limits = _Limits(
            tag_codes=tag_codes,
            max_messages=max(1, min(max_messages, count)),
            max_bytes=size if max_bytes is None else min(size, max_bytes),
            max_examined=self._max_examined(max_messages),
            confirm_offset=confirm,
            min_physical_offset=self._log.min_offset,
        )
        result = self._read_queue(queue, offset, high, limits, may_wait=may_wait)
        self._count_read(result.message_count, is_own=is_own)
        return result

    def _read_queue(
        self,
        queue: ConsumeQueue,
        offset: QueueOffset,
        high: QueueOffset,
        limits: "_Limits",
        *,
        may_wait: bool,
    ) -> GetResult:
        """Read messages of a queue from the log; bad blocks only if they come first."""
        low = queue.min_offset
        scan = _scan(queue, offset, high, limits, may_wait=may_wait)
        if scan.message_count and not may_wait:
            self._require_records(scan.runs)
        bad = self._digests.first_bad(scan.runs)
        if bad is not None:
            limits["confirm_offset"] = min(limits["confirm_offset"], bad.begin)
            scan = _scan(queue, offset, high, limits, may_wait=True)
            if not scan.examined:
                tag_codes = limits["tag_codes"]
                return self._read_bad_block(queue, offset, high, tag_codes, bad)
        wrong = self._wrong.find(queue, offset, scan, limits["min_physical_offset"])
        if wrong == 0:
            return self._skip_wrong_entry(queue, offset, high)
        if wrong > 0:
            limits["max_examined"] = wrong
            scan = _scan(queue, offset, high, limits, may_wait=True)
        if not scan.message_count:
            return _no_message(scan, offset, low, high)
        return GetResult(
            GetStatus.FOUND,
            QueueOffset(offset + scan.examined),
            low,
            high,
            scan.message_count,
            self._read_runs(scan.runs),
            not self._is_hot(queue.entry_at(offset)[0]),
        )

    def _skip_wrong_entry(
        self, queue: ConsumeQueue, offset: QueueOffset, high: QueueOffset
    ) -> GetResult:
        """Skip an entry that has no record; EntryDamaged if it may have one."""
        self._wrong.report(queue, offset, self._log.min_offset)
        following, low = QueueOffset(offset + 1), queue.min_offset
        return GetResult(GetStatus.NO_MATCHED_MESSAGE, following, low, high)

    def _read_bad_block(
        self,
        queue: ConsumeQueue,
        offset: QueueOffset,
        high: QueueOffset,
        tag_codes: tuple[int, ...] | None,
        bad: BadBlock,
    ) -> GetResult:
        """Read the message at `offset`, whose block has other bytes than were written.

        RecordDamaged as in `LogDigests.read_damaged`.
        """
        place, size, code = queue.entry_at(offset)
        following = QueueOffset(queue.start_after(offset))
        low = queue.min_offset
        is_wanted = tag_codes is None or code in tag_codes
        data = None
        if is_wanted:
            error = RecordDamaged(place, bad.begin)
            data = self._digests.read_damaged(error, size)
        if data is None:
            return GetResult(GetStatus.NO_MATCHED_MESSAGE, following, low, high)
        count = max(1, following - offset)
        return GetResult(GetStatus.FOUND, following, low, high, count, data)

    def _read_compacted(
        self,
        compacted: CompactedQueue,
        offset: QueueOffset,
        max_messages: int,
        max_bytes: int | None,
        *,
        tag_codes: tuple[int, ...] | None,
        may_wait: bool,
    ) -> Found:
        """Read messages that were copied from the log."""
        count, size = self._limits(True)
        return compacted.read(
            offset,
            max(1, min(max_messages, count)),
            size if max_bytes is None else min(size, max_bytes),
            tag_codes=tag_codes,
            max_examined=self._max_examined(max_messages),
            may_wait=may_wait,
        )

    def _max_examined(self, max_messages: int) -> int:
        """Return the number of entries that one read examines."""
        scan_bytes = max(self._config.filter_scan_bytes, max_messages * ENTRY_SIZE)
        return scan_bytes // ENTRY_SIZE

    def _count_read(self, count: int, *, is_own: bool) -> None:
        if is_own:
            self._counts.own_read_messages += count
        elif count:
            self._counts.get_found += 1
        else:
            self._counts.get_missed += 1

    def is_compacted(self, topic: str) -> bool:
        """Whether only the last message of each key stays in a topic."""
        return topic in self._compaction.topics

    def entries_at(
        self, topic: str, queue_id: int, offset: QueueOffset
    ) -> tuple[QueueTail, MappedFile | None] | None:
        """Return a queue with the file of its entry at `offset`; None without an entry.

        Also None if its entries have the form of batches.  The file is None if the
        entry is in memory.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return None
        return None if queue.is_batch else (queue, queue.file_of(offset))

    def tag_codes(
        self, topic: str, queue_id: int, first: QueueOffset, end: QueueOffset
    ) -> set[int]:
        """Return the tags codes of the entries in [first, end), each once."""
        codes: set[int] = set()
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return codes
        at: int = max(first, queue.min_offset)
        stop = min(end, queue.next_offset)
        if isinstance(queue, BatchQueue):
            return queue.tag_codes(at, stop)
        while at < stop:
            entries = queue.read_entries(QueueOffset(at), stop - at)
            codes.update(code for (code,) in _TAGS_CODE.iter_unpack(entries))
            at += len(entries) // ENTRY_SIZE
        return codes

    def load_keys(
        self,
        table: OnceTable,
        topics: Collection[str],
        diverted_to: Iterable[str],
        since_ms: int,
    ) -> None:
        """Add the messages of topics since a time to an empty table of keys.

        They are in the queues of `topics`; delayed and half messages are in those of
        `diverted_to`. It reads at most twice as many entries as the table has.
        """
        queues = [
            queue
            for topic in (*topics, *diverted_to)
            for queue in self._queues.of_topic(topic)
            if queue.min_offset < queue.next_offset
        ]
        start_ms = self._later_start(queues, since_ms, 2 * table.capacity)
        blocks = [
            bytes(block)
            for queue in queues
            for block in self._entries_since(queue, start_ms)
        ]
        names = {topic.encode("utf-8", "surrogatepass") for topic in topics}
        table.load(self._log.reader, blocks, names, since_ms)

    def _later_start(
        self, queues: Sequence[ConsumeQueue], since_ms: int, max_entries: int
    ) -> int:
        """Return `since_ms`, or a later time from which entries are few enough."""
        log = self._log.reader

        def count_since(time_ms: int) -> int:
            return sum(
                queue.next_offset
                - queue.search_time(log, time_ms, queue.next_offset, upper=False)
                for queue in queues
            )

        if count_since(since_ms) <= max_entries:
            return since_ms
        last_ms = max(
            log.store_ms_at(each.entry_at(QueueOffset(each.next_offset - 1))[0])
            for each in queues
        )
        return since_ms + bisect_left(
            range(since_ms, last_ms + 1),
            -max_entries,
            key=lambda time_ms: -count_since(time_ms),
        )

    def _entries_since(
        self, queue: ConsumeQueue, since_ms: int
    ) -> Iterator[bytes | memoryview]:
        """Yield the entries of a queue since a time, in its form of 20 bytes."""
        end = queue.next_offset
        at = queue.search_time(self._log.reader, since_ms, end, upper=False)
        while at < end:
            if isinstance(queue, BatchQueue):
                yield _ENTRY.pack(*queue.entry_at(QueueOffset(at)))
                at = queue.start_after(QueueOffset(at))
            else:
                entries = queue.read_entries(QueueOffset(at), end - at)
                yield entries
                at += len(entries) // ENTRY_SIZE

    def pull_table(
        self, version: int, commits: CommitTable, on_work: Callable[[], object]
    ) -> PullTable:
        """Return a table with which compiled handlers read like `get`."""
        table = PullTable(
            self._log,
            self._log.reader,
            self._positions.visible_limit,
            hot_window=self._memory_window,
            hot_limits=self._limits(True),
            cold_limits=self._limits(False),
            scan_bytes=self._config.filter_scan_bytes,
            version=version,
            commits=commits,
            on_work=on_work,
        )
        self._tables.append(table)
        return table

    def counts(self) -> ReadCounts:
        """Return the reads of `get` and of compiled handlers since the start."""
        own, tables = self._counts, self._tables
        return ReadCounts(
            own.get_found + sum(each.found for each in tables),
            own.get_missed + sum(each.missed for each in tables),
            own.own_read_messages,
        )

    def _require_records(self, runs: list[tuple[int, int]]) -> None:
        """Raise `NotInMemory` for records that only the disk has."""
        ranges = (self._log.reader.find_missing(*run) for run in runs)
        missing = [each for each in ranges if each is not None]
        if missing:
            raise NotInMemory(missing)

    def _limits(self, in_memory: bool) -> tuple[int, int]:
        """Return the maximum messages and bytes of one pull."""
        config = self._config
        if in_memory:
            return config.memory_transfer_count, config.memory_transfer_bytes
        return config.disk_transfer_count, config.disk_transfer_bytes

    def _read_runs(self, runs: list[tuple[int, int]]) -> bytes:
        """Copy records; a run may continue in the next file."""
        parts = []
        for offset, size in runs:
            data = self._log.read(PhysicalOffset(offset), size)
            assert data is not None, f"{size} bytes at {offset} are not in the log"
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _is_hot(self, physical_offset: int) -> bool:
        return self._log.end_offset - physical_offset <= self._memory_window

    def is_in_memory(self, topic: str, queue_id: int, offset: QueueOffset) -> bool:
        """Whether a message is near enough to the log's end to be in the page cache."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return False
        return self._is_hot(queue.entry_at(offset)[0])

    def record_at(self, physical_offset: PhysicalOffset) -> bytes | None:
        """Return the record that starts at `physical_offset`, as stored.

        None if there is no record. Use it only for offsets that the broker knows: bytes
        inside of a body may look like a record. Use `verified_message_at` for offsets
        from clients. RecordDamaged as in `LogDigests.read_damaged`.
        """
        data = self._read_record(physical_offset)
        if data is None or physical_offset + len(data) > self._positions.visible:
            return None
        return data if self._decode(data, physical_offset) is not None else None

    def message_at(self, physical_offset: PhysicalOffset) -> StoredMessage | None:
        """Return the decoded record of `record_at`."""
        message = self._decode_at(physical_offset)
        if message is None:
            return None
        is_visible = physical_offset + message.size <= self._positions.visible
        return message if is_visible else None

    def verified_message_at(
        self, physical_offset: PhysicalOffset
    ) -> StoredMessage | None:
        """Return the record at an offset from a client; None if there is none.

        A client can send a body that looks like a record with this very offset. Only
        the store writes queue entries: the entry of the record must have this offset.
        """
        message = self.message_at(physical_offset)
        return message if message is not None and self._has_entry(message) else None

    def appended_message_at(
        self, physical_offset: PhysicalOffset
    ) -> StoredMessage | None:
        """Return a record as `verified_message_at`, also before it is visible."""
        message = self._decode_at(physical_offset)
        return message if message is not None and self._has_entry(message) else None

    def _decode_at(self, physical_offset: PhysicalOffset) -> StoredMessage | None:
        data = self._read_record(physical_offset)
        return None if data is None else self._decode(data, physical_offset)

    def _read_record(self, physical_offset: int) -> bytes | None:
        try:
            return self._log.reader.read_record(physical_offset)
        except RecordDamaged as error:
            return self._digests.read_damaged(error)

    @staticmethod
    def _decode(data: bytes, physical_offset: PhysicalOffset) -> StoredMessage | None:
        try:
            message = decode_stored_at(data, 0)
        except RemoteProtocolError:
            return None
        return message if message.physical_offset == physical_offset else None

    def _has_entry(self, message: StoredMessage) -> bool:
        """Whether the queue entry of a record has its offset and size."""
        queue = self._queues.get(message.topic, message.queue_id)
        if queue is None:
            return False
        if not queue.min_offset <= message.queue_offset < queue.next_offset:
            return False
        entry = queue.entry_at(message.queue_offset)
        return entry[:2] == (message.physical_offset, message.size)

    def query(
        self,
        topic: str,
        key: str,
        max_messages: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_tags: bool = False,
    ) -> Generator[Step, None, list[PhysicalOffset]]:
        """Return log offsets of the newest messages with this key or tags, in order.

        They were stored in [begin_ms, end_ms]; at most `max_messages` and
        `maxMsgsNumBatch`. It reads messages without index entries from the log; if
        there are many, it yields steps for a worker. RecordDamaged as in
        `LogDigests.read_damaged`.
        """
        limit = min(max_messages, self._config.query_max_count)
        if limit <= 0 or not self._config.index_enabled:
            return []
        return (
            yield from self._index.query(
                topic,
                key,
                is_tags=is_tags,
                begin_ms=begin_ms,
                end_ms=end_ms,
                end_offset=self._positions.visible,
                limit=limit,
                check=self._read_record,
            )
        )

    def physical_at(self, topic: str, queue_id: int, offset: QueueOffset) -> int:
        """Physical offset of a message; -1 if the log does not have it."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return -1
        return queue.entry_at(offset)[0]

    def store_time_at(self, topic: str, queue_id: int, offset: QueueOffset) -> int:
        """Store time of a message in milliseconds; -1 if it does not exist.

        If a compaction has removed the message, it is the time of the next one.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None or offset >= queue.visible_offset(self._positions.visible):
            return -1
        compacted = self._compaction.find(topic, queue_id)
        if compacted is not None and offset < compacted.copied_offset:
            for _, entry in compacted.entries_from(offset):
                return entry.store_ms
        if offset < queue.min_offset:
            return -1
        return self._log.store_ms_at(queue.entry_at(offset)[0])

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """Return the offset for a time in milliseconds.

        LOWER: the first message stored at or after the time; UPPER: the last message
        before it. Before the first message UPPER is 0, whatever the minimum is; after
        the last message LOWER is the maximum and UPPER the last message.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return self.reported_min_offset(topic, queue_id)
        end = queue.visible_offset(self._positions.visible)
        is_upper = boundary is Boundary.UPPER
        found = queue.search_time(self._log.reader, timestamp_ms, end, upper=is_upper)
        compacted = self._compaction.find(topic, queue_id)
        if compacted is not None:
            found = compacted.search_time(timestamp_ms, found, upper=is_upper)
        return QueueOffset(found)


def _compacted_result(
    found: Found, compacted: CompactedQueue, high: QueueOffset
) -> GetResult:
    """Return the result of a read of a compacted queue."""
    count = len(found.records)
    return GetResult(
        GetStatus.FOUND if count else GetStatus.NO_MATCHED_MESSAGE,
        QueueOffset(found.next_offset),
        QueueOffset(max(0, compacted.min_offset)),
        high,
        count,
        b"".join(found.records),
    )


class _Limits(TypedDict):
    """The arguments of a scan; see `scan_queue`."""

    tag_codes: tuple[int, ...] | None
    max_messages: int
    max_bytes: int
    max_examined: int
    confirm_offset: PhysicalOffset
    min_physical_offset: PhysicalOffset


def _scan(
    queue: ConsumeQueue,
    offset: QueueOffset,
    high: int,
    limits: _Limits,
    *,
    may_wait: bool,
) -> QueueScan:
    """Scan the entries in [offset, high) of a queue, as far as the limits allow."""
    if isinstance(queue, BatchQueue):
        return queue.scan(offset, **limits)
    entries = queue.read_entries(offset, min(high - offset, limits["max_examined"]))
    if not may_wait:
        _require_entries(queue, offset, len(entries))
    return scan_queue(entries, **limits)


def _no_message(
    scan: QueueScan, offset: QueueOffset, low: QueueOffset, high: QueueOffset
) -> GetResult:
    """Return the result of a scan from `offset` on that found nothing."""
    removed = scan.examined and scan.removed == scan.examined
    status = GetStatus.MESSAGE_WAS_REMOVING if removed else GetStatus.NO_MATCHED_MESSAGE
    return GetResult(status, QueueOffset(offset + scan.examined), low, high)


def _require_entries(queue: ConsumeQueue, offset: QueueOffset, size: int) -> None:
    """Raise `NotInMemory` for bytes of entries that only the disk has."""
    file = queue.file_of(offset)
    if file is not None:
        position = offset * ENTRY_SIZE - file.base_offset
        if not file.is_resident(position, size):
            raise NotInMemory([(file, position, size)])


def _out_of_range(
    offset: QueueOffset, low: QueueOffset, high: QueueOffset
) -> GetResult:
    """Return the result for an offset outside of the queue."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, _FIRST, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
