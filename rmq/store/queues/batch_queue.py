"""BatchQueue: the physical offsets of the records of one queue of a topic with
`queue.type=BatchCQ`.

Layout: files of one size in `batchconsumequeue/<topic>/<queue id>/`, named by their
byte offset in 20 digits.  An entry has 46 bytes:
i64 physical offset · i32 record size · i64 tags code · i64 store time in ms ·
i64 offset of the first message · i16 messages · i32 -1 (for Java) · i32 0, or 1 if an
operator has accepted that its messages are lost

An entry is one record: an inner batch of several messages, or a message alone.  Entry n
is at byte 46 * n; offsets count messages, so an entry is found by a search for its
first offset.
Invariants: physical offsets and first offsets grow. Entries from number `_first` on are
in memory. Entries from number `_flushed` on are not in a file yet. Offsets may have
gaps where the log has lost records; a reader skips the gaps. Crash contract: like
`ConsumeQueue`. Belongs to the trio thread; a worker calls only the functions that are
marked so.
"""

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Final, NamedTuple

from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import TailSet
from rmq._fastpath.log.scan import QueueScan, ScanStop
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.batch import MAX_INNER_ITEMS
from rmq.protocol.flags import INNER_BATCH
from rmq.protocol.properties import INNER_NUM, decode_properties
from rmq.store.queues.consume_queue import NO_OFFSET, ConsumeQueue
from rmq.store.queues.queue_files import QueueFiles

_ENTRY: Final = struct.Struct(">qiqqqhii")
BATCH_ENTRY_SIZE: Final = _ENTRY.size
NOT_COMPACTED: Final = -1
KEPT_ENTRIES: Final = 64
"""Number of durable entries that stay in memory for readers near the end, 3 KB."""


class BatchEntry(NamedTuple):
    """One record."""

    physical_offset: PhysicalOffset
    size: int
    tags_code: int
    store_ms: int
    first: int
    messages: int
    compacted: int = NOT_COMPACTED
    lost: int = 0

    @property
    def end_physical(self) -> int:
        """Physical offset of the end of the record."""
        return self.physical_offset + self.size

    @property
    def end(self) -> int:
        """Queue offset after the last message of the record."""
        return self.first + self.messages

    @property
    def is_valid(self) -> bool:
        """Whether the entry was written; zeros follow the last written entry of a
        file.
        """
        return (
            self.physical_offset >= 0
            and self.size > 0
            and self.first >= 0
            and self.messages > 0
        )


class BatchQueue(ConsumeQueue):
    """The entries of one topic and queue. Known in Java as `BatchConsumeQueue`."""

    __slots__ = ("_end", "_first", "_flushed", "_low", "tail")

    entry_size = BATCH_ENTRY_SIZE
    is_batch = True

    def __init__(
        self,
        topic: str,
        queue_id: int,
        folder: str,
        files: QueueFiles,
        tails: TailSet | None = None,
    ) -> None:
        super().__init__(topic, queue_id, folder, files, tails)
        self.tail = bytearray()
        self._low = self._first = self._flushed = self._end = 0

    # -- start

    def load(
        self, known_end: int = 0, durable_offset: PhysicalOffset = NO_OFFSET
    ) -> None:
        """Find the end, as `ConsumeQueue.load` does."""
        if not self._find_files():
            return
        size = self._files.file_size
        self._low = self._bases[0] // BATCH_ENTRY_SIZE
        self._end = self._first = self._flushed = (
            self._bases[-1] + size
        ) // BATCH_ENTRY_SIZE

        def is_doubtful(number: int) -> bool:
            entry = self._read(number)
            is_certain = entry.end <= known_end or entry.end_physical <= durable_offset
            return not (entry.is_valid and is_certain)

        numbers = range(self._low, self._end)
        end = self._low + bisect_left(numbers, True, key=is_doubtful)
        while end < self._end and self._read(end).is_valid:
            end += 1
        self.low_offset = self._read(self._low).first
        self.low_physical = PhysicalOffset(-1)
        self._end_before(end)
        self.has_more_data = True
        if known_end > self.next_offset:
            self.load(0, durable_offset)

    def _end_before(self, number: int) -> None:
        """End before an entry."""
        del self.tail[max(0, number - self._first) * BATCH_ENTRY_SIZE :]
        self._end = number
        self._first = min(self._first, number)
        self._flushed = min(self._flushed, number)
        if number == self._low:
            self._set_end(self.low_offset, -1)
        else:
            last = self._read(number - 1)
            self._set_end(last.end, last.end_physical)

    def _set_end(self, end: int, end_physical: int) -> None:
        flushed = end if self._flushed == self._end else self._read(self._flushed).first
        self.set_ends(end, flushed, end_physical)

    # -- flush

    def unflushed_entries(self, most: int) -> bytes:
        """Copy at most `most` of the entries that are only in memory."""
        start = (self._flushed - self._first) * BATCH_ENTRY_SIZE
        return bytes(self.tail[start : start + most * BATCH_ENTRY_SIZE])

    def mark_flushed(self, end: int) -> None:
        """Record that files have the entries before `end`, and free their memory."""
        self._flushed = self._number_from(end)
        dropped = max(0, self._flushed - KEPT_ENTRIES - self._first)
        del self.tail[: dropped * BATCH_ENTRY_SIZE]
        self._first += dropped
        self._set_end(self.next_offset, self.end_physical)

    def _byte_of(self, offset: int) -> int:
        return self._number_from(offset) * BATCH_ENTRY_SIZE

    def _offset_of(self, byte: int) -> QueueOffset:
        number = byte // BATCH_ENTRY_SIZE
        is_end = number == self._end
        return QueueOffset(self.next_offset if is_end else self._read(number).first)

    # -- entries

    def add(
        self,
        physical_offset: PhysicalOffset,
        size: int,
        tags_code: int,
        store_ms: int,
        count: int = 1,
    ) -> None:
        """Add and count the entry of a record with the next `count` messages."""
        assert 0 < count <= MAX_INNER_ITEMS, count
        first = self.next_offset
        entry = BatchEntry(physical_offset, size, tags_code, store_ms, first, count)
        self.tail += _ENTRY.pack(*entry)
        if self.low_offset == first:
            self.low_physical = physical_offset
        self._end += 1
        self._set_end(entry.end, entry.end_physical)
        self.count_record(size, count)

    def publish(self, physical_offset: int, size: int, tags_code: int) -> int:
        """Refuse an entry without its time: an entry of 20 bytes would damage the
        queue.
        """
        raise NotImplementedError(f"{self.folder}: use add")

    def fill_to(self, queue_offset: int) -> int:
        """Continue at `queue_offset`; entries name their offsets, so no filler is
        needed.
        """
        if self._low == self._end:
            self.low_offset, self.low_physical = queue_offset, NO_OFFSET
        self._set_end(queue_offset, -1)
        return 0

    def _read(self, number: int) -> BatchEntry:
        """Return the entry with this number."""
        if number >= self._first:
            position = (number - self._first) * BATCH_ENTRY_SIZE
            return BatchEntry(*_ENTRY.unpack_from(self.tail, position))
        byte, size = number * BATCH_ENTRY_SIZE, self._files.file_size
        base = byte // size * size
        file = self._files.open(self._path(base), base)
        return BatchEntry(*_ENTRY.unpack(file.view(byte - base, BATCH_ENTRY_SIZE)))

    def _number_from(self, offset: int) -> int:
        """Return the number of the first entry that begins at `offset` or later."""
        numbers = range(self._low, self._end)
        return self._low + bisect_left(numbers, offset, key=lambda n: self._read(n)[4])

    def _number_at(self, offset: int) -> int:
        """Return the number of the entry of a message; after a gap the next one."""
        numbers = range(self._low, self._end)
        number = bisect_right(numbers, offset, key=lambda n: self._read(n)[4]) - 1
        number = self._low + max(0, number)
        return number + (self._read(number).end <= offset)

    def _entries_from(self, offset: int) -> Iterator[BatchEntry]:
        """Yield the entry of a message and all later entries."""
        for number in range(self._number_at(offset), self._end):
            yield self._read(number)

    def start_before(self, offset: QueueOffset) -> int:
        """Return the first offset of the entry before `offset`."""
        return self._read(self._number_from(offset) - 1).first

    def start_after(self, offset: QueueOffset) -> int:
        """Return the first offset after the entry of `offset`."""
        return self._read(self._number_at(offset)).end

    def entry_at(self, offset: QueueOffset) -> tuple[PhysicalOffset, int, int]:
        """Read (physical offset, size, tags code) of the record of a message."""
        return self._read(self._number_at(offset))[:3]

    def read_once(self, offset: QueueOffset) -> tuple[int, int]:
        """Read (physical offset, size) of the record of a message."""
        return self.entry_at(offset)[:2]

    def file_of(self, offset: int) -> None:
        """Return None: no compiled reader reads these files."""

    def scan(
        self,
        offset: QueueOffset,
        *,
        tag_codes: tuple[int, ...] | None,
        max_messages: int,
        max_bytes: int,
        max_examined: int,
        confirm_offset: PhysicalOffset,
        min_physical_offset: PhysicalOffset,
    ) -> QueueScan:
        """Collect whole records for a pull, like `scan_queue`; `max_examined` counts
        offsets instead of entries.

        The first record is always complete, also if the pull wants fewer messages.
        """
        runs: list[tuple[int, int]] = []
        messages = size = removed = 0
        at, stop = offset, ScanStop.SCAN_END
        for entry in self._entries_from(offset):
            if entry.end_physical > confirm_offset:
                break
            is_over = size + entry.size > max_bytes
            if messages and (messages + entry.messages > max_messages or is_over):
                stop = ScanStop.SCAN_FULL
                break
            if entry.first - offset >= max_examined:
                stop = ScanStop.SCAN_LIMIT
                break
            if entry.physical_offset < min_physical_offset:
                removed += entry.end - at
            elif not entry.lost and (tag_codes is None or entry.tags_code in tag_codes):
                _add_run(runs, entry.physical_offset, entry.size)
                messages += entry.messages
                size += entry.size
            at = QueueOffset(entry.end)
        return QueueScan(runs, messages, size, at - offset, removed, stop)

    def tag_codes(self, first: int, end: int) -> set[int]:
        """Return the tags codes of the entries with messages in [first, end)."""
        codes = set()
        for entry in self._entries_from(first):
            if entry.first >= end:
                break
            codes.add(entry.tags_code)
        return codes

    def visible_offset(self, confirm_offset: PhysicalOffset) -> QueueOffset:
        """Offset after the last entry of a record below `confirm_offset`."""
        if self.end_physical <= confirm_offset:
            return self.next_offset
        numbers = range(self._low, self._end)
        count = bisect_right(
            numbers, int(confirm_offset), key=lambda n: self._read(n).end_physical
        )
        if not count:
            return self.min_offset
        return QueueOffset(max(self.min_offset, self._read(self._low + count - 1).end))

    def _number_at_or_above(self, physical_offset: int) -> int:
        numbers = range(self._low, self._end)
        return self._low + bisect_left(
            numbers, physical_offset, key=lambda n: self._read(n)[0]
        )

    def _first_at_or_above(self, physical_offset: int) -> int:
        number = self._number_at_or_above(physical_offset)
        return self.next_offset if number == self._end else self._read(number).first

    def search_time(
        self, log: LogReader, timestamp_ms: int, end: int, *, upper: bool
    ) -> int:
        """Return the first offset of the record for a time, as Java does.

        The result is the first record with this time or a later time. With `upper`, it
        is the last record with the same time. For a time after all records it is the
        last record.
        """
        first = self.min_offset
        if first >= end:
            return first
        numbers = range(self._number_at(first), self._number_from(end))

        def time_at(number: int) -> int:
            return self._read(number).store_ms

        found = bisect_left(numbers, timestamp_ms, key=time_at)
        if upper:
            after = bisect_right(numbers, timestamp_ms, key=time_at)
            found = after - 1 if after > found else found
        return self._read(numbers[min(found, len(numbers) - 1)]).first

    # -- removal

    def _begin_at(self, base: int) -> None:
        self._low = base // BATCH_ENTRY_SIZE
        first = self.next_offset
        if self._low < self._end:
            first = QueueOffset(self._read(self._low).first)
        if self.low_offset < first:
            self.low_offset, self.low_physical = first, PhysicalOffset(-1)

    def truncate(self, end_physical: PhysicalOffset) -> int:
        """Drop the entries of records that end after `end_physical`; return their
        number.
        """
        if self.end_physical <= end_physical:
            return 0
        kept = self._number_at_or_above(end_physical)
        while kept > self._low and self._read(kept - 1).end_physical > end_physical:
            kept -= 1
        return self._cut_before(kept)

    def cut_to(self, end: int) -> int:
        """Drop the entries that begin at offset `end` or later; return the count."""
        return self._cut_before(self._number_from(end))

    def _cut_before(self, number: int) -> int:
        dropped, was_flushed = self._end - number, self._flushed
        self._end_before(number)
        if number < was_flushed:
            self.clear_after()
        return dropped

    def start_over(self) -> int:
        """Drop all entries, as `ConsumeQueue.start_over` does."""
        dropped = self._end - self._low
        super().start_over()
        self.tail.clear()
        self._low = self._first = self._flushed = self._end = 0
        self.set_ends(0, 0, -1)
        return dropped


def _add_run(runs: list[tuple[int, int]], offset: int, size: int) -> None:
    """Add a record to the runs of the log that are copied together."""
    if runs and sum(runs[-1]) == offset:
        runs[-1] = runs[-1][0], runs[-1][1] + size
    else:
        runs.append((offset, size))


def inner_count(sys_flag: int, properties: bytes) -> int:
    """Return the number of messages in a record: 1 if it is no inner batch."""
    if not sys_flag & INNER_BATCH:
        return 1
    text = decode_properties(properties.decode("utf-8", "replace")).get(INNER_NUM, "")
    count = int(text) if text.isascii() and text.isdecimal() else 0
    return count if 0 < count <= MAX_INNER_ITEMS else 1
