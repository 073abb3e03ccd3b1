"""StoreReader: messages by queue, by offset in the log, by time, by key.

Every reader stops at the confirm offset: the durable offset under SYNC_FLUSH, else the
end of the log.  Limits of a pull: so many messages and bytes from the hot end of the
log (what is likely in memory), fewer from older parts; the first message is always
given.  Called from the trio thread.
"""

from rmq._fastpath import scan_queue
from rmq.errors import StoreClosed
from rmq.protocol.message import is_record
from rmq.store.commit_log import CommitLog, memory_window
from rmq.store.config import StoreConfig
from rmq.store.consume_queue import ENTRY_SIZE
from rmq.store.consume_queues import ConsumeQueues
from rmq.store.index import MessageIndex
from rmq.store.results import Boundary, GetResult, GetStatus
from rmq.store.stats import StoreCounters


class StoreReader:
    """The reading half of a `MessageStore`."""

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        queues: ConsumeQueues,
        index: MessageIndex,
        counters: StoreCounters,
    ) -> None:
        self.config = config
        self.is_open = False
        self._log = log
        self._queues = queues
        self._index = index
        self._counters = counters
        self._sync = config.is_sync_flush
        self._memory_window = memory_window(config.memory_ratio)

    @property
    def confirm_offset(self) -> int:
        """End of what readers may see."""
        return self._log.durable.value if self._sync else self._log.end_offset

    def min_offset(self, topic: str, queue_id: int) -> int:
        """First offset of a queue; 0 if it never had a message."""
        queue = self._queues.get(topic, queue_id)
        return queue.min_offset if queue else 0

    def max_offset(self, topic: str, queue_id: int) -> int:
        """Offset after the last visible message; 0 if there never was one."""
        queue = self._queues.get(topic, queue_id)
        return queue.visible_offset(self.confirm_offset) if queue else 0

    def get(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        *,
        max_bytes: int | None = None,
        tag_codes: tuple[int, ...] | None = None,
    ) -> GetResult:
        """Read messages of a queue from `offset` on; `tag_codes` None takes all."""
        if not self.is_open:
            raise StoreClosed(f"{self.config.root_dir} is closed")
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return GetResult(GetStatus.NO_MATCHED_LOGIC_QUEUE, 0, 0, 0)
        confirm = self.confirm_offset
        low, high = queue.min_offset, queue.visible_offset(confirm)
        if not low <= offset < high:
            self._counters.get_missed += 1
            return _outside(offset, low, high)
        file, position = queue.locate(offset)
        readable = min(file.size, (high - offset) * ENTRY_SIZE + position)
        in_memory = self._is_hot(queue.entry(offset)[0])
        count, size = self._limits(in_memory)
        if max_bytes is not None:
            size = min(size, max_bytes)
        scan_bytes = max(self.config.filter_scan_bytes, max_messages * ENTRY_SIZE)
        scan = scan_queue(
            file,
            position,
            readable,
            tag_codes=tag_codes,
            max_messages=max(1, min(max_messages, count)),
            max_bytes=size,
            max_examined=scan_bytes // ENTRY_SIZE,
            confirm_offset=confirm,
            min_physical_offset=self._log.min_offset,
        )
        following = offset + scan.examined
        if not scan.message_count:
            self._counters.get_missed += 1
            removed = scan.removed == scan.examined and scan.examined
            status = (
                GetStatus.MESSAGE_WAS_REMOVING
                if removed
                else GetStatus.NO_MATCHED_MESSAGE
            )
            return GetResult(status, following, low, high)
        self._counters.get_found += 1
        self._counters.transferred_messages += scan.message_count
        return GetResult(
            GetStatus.FOUND,
            following,
            low,
            high,
            scan.message_count,
            self._read_runs(scan.runs),
            not in_memory,
        )

    def _limits(self, in_memory: bool) -> tuple[int, int]:
        """Return messages and bytes that one pull may have."""
        config = self.config
        if in_memory:
            return config.memory_transfer_count, config.memory_transfer_bytes
        return config.disk_transfer_count, config.disk_transfer_bytes

    def _read_runs(self, runs: list[tuple[int, int]]) -> bytes:
        """Copy records; a run may go on in the next file."""
        parts = []
        for offset, size in runs:
            data = self._log.read(offset, size)
            assert data is not None, f"{size} bytes at {offset} are not in the log"
            parts.append(data)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _is_hot(self, physical_offset: int) -> bool:
        return self._log.end_offset - physical_offset <= self._memory_window

    def is_in_memory(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a message is near enough to the end to be in the page cache."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return False
        return self._is_hot(queue.entry(offset)[0])

    def record_at(self, physical_offset: int) -> bytes | None:
        """Return the record that starts at `physical_offset`, as stored.

        None if none starts there: strangers ask for any offset, and bytes inside of a
        record may look like anything.
        """
        size = self._log.record_size_at(physical_offset)
        if size <= 0 or physical_offset + size > self.confirm_offset:
            return None
        data = self._log.read(physical_offset, size)
        is_whole = data is not None and is_record(data, physical_offset)
        return data if is_whole else None

    def query(
        self,
        topic: str,
        key: str,
        max_messages: int,
        begin_ms: int,
        end_ms: int,
        *,
        is_tags: bool = False,
    ) -> list[int]:
        """Log offsets of the newest messages with this key or these tags, in order.

        Stored in [begin_ms, end_ms]; at most `max_messages` and `maxMsgsNumBatch`.
        Messages that the index does not cover yet are found by reading the log.
        """
        limit = min(max_messages, self.config.query_max_count)
        if limit <= 0 or not self.config.index_enabled:
            return []
        return self._index.query(
            topic,
            key,
            is_tags=is_tags,
            begin_ms=begin_ms,
            end_ms=end_ms,
            end_offset=self.confirm_offset,
            limit=limit,
        )

    def store_time_at(self, topic: str, queue_id: int, offset: int) -> int:
        """Store time of a message in milliseconds; -1 if it is not there."""
        queue = self._queues.get(topic, queue_id)
        if queue is None or not queue.min_offset <= offset < queue.next_offset:
            return -1
        return self._log.store_ms_at(queue.entry(offset)[0])

    def offset_by_time(
        self, topic: str, queue_id: int, timestamp_ms: int, boundary: Boundary
    ) -> int:
        """LOWER: the first offset stored at or after the time; UPPER: the last before.

        Before the first message UPPER is literally 0; after the last, LOWER is the
        maximum and UPPER the last message.
        """
        queue = self._queues.get(topic, queue_id)
        if queue is None:
            return 0
        end = queue.visible_offset(self.confirm_offset)
        is_upper = boundary is Boundary.UPPER
        return queue.search_time(
            self._log.store_ms_at, timestamp_ms, end, upper=is_upper
        )


def _outside(offset: int, low: int, high: int) -> GetResult:
    """Say where a reader stands that asks for what is not in the queue."""
    if high == 0:
        return GetResult(GetStatus.NO_MESSAGE_IN_QUEUE, 0, low, high)
    if offset < low:
        return GetResult(GetStatus.OFFSET_TOO_SMALL, low, low, high)
    if offset == high:
        return GetResult(GetStatus.OFFSET_OVERFLOW_ONE, offset, low, high)
    return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, high, low, high)
