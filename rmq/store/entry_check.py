"""EntryCheck: compares the last entries of queues with their records, at a start.

After a clean shutdown only the last entries prove the end of the log. A wrong bit in an
entry would move that end, and the store would append new messages after a gap. The next
start would take the gap for the end of the log. So an entry proves an end only if a
record ends there.
A wrong entry is written again from its record. The record of an entry is at the entry's
physical offset, or, if another record is there, elsewhere in the log with this queue
offset. An entry without such a record stays: the record may be damaged, and the entry
right. The check runs before any other part uses the store, when all entries are in
files.
"""

import struct
from collections.abc import Callable, Iterator
from heapq import nlargest
from operator import attrgetter
from typing import Final

from rmq._fastpath.log.decode import RecordStatus, RecordView
from rmq._fastpath.log.layout import RecordLayout
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import WalkedRecord, count_matching, walk_log
from rmq.core.offsets import PhysicalOffset, QueueOffset
from rmq.protocol.topics import is_lmq
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.queues.consume_queue import ENTRY_SIZE, FILLER_SIZE, ConsumeQueue
from rmq.store.queues.consume_queues import ConsumeQueues
from rmq.store.queues.multi_dispatch import stored_targets
from rmq.store.tags import SCHEDULE_TOPIC, TagsCodes

CHECKED_QUEUES: Final = 10_000
"""Maximum number of queues whose last entries are checked; the queues with the newest
records come first. The check of a queue may read a page of the log from the disk.
"""

SMALL_FILE: Final = 400
"""Maximum number of entries of a last file that is checked whole."""

CHECKED_ENTRIES: Final = 20_000
"""Maximum number of entries of such files that a start checks. It checks only the last
entry of all other queues.
"""

SEARCHED_BYTES: Final = 64 << 20
"""Bytes of the log in which one start looks for the records of wrong entries."""

SEARCHED_WHILE_RUNNING: Final = 4 << 30
"""Bytes of the log in which a worker looks for the record of one wrong entry."""

WALKED_RECORDS: Final = 512
"""Records of one step: other threads wait for 0.5 ms at most."""

_ENTRY = struct.Struct(">qiq")


class EntryCheck:
    """One run over the queues of a store."""

    def __init__(
        self,
        files: MappedFileQueue,
        queues: ConsumeQueues,
        tags: TagsCodes,
        *,
        has_addresses: Callable[[str], bool],
        add_note: Callable[[str], None],
    ) -> None:
        """`has_addresses`: whether entries of a topic may have addresses as codes."""
        self.proven_end = -1
        """The largest end of a record with a right entry; -1 if there is no such
        record.
        """

        self.unproven: dict[ConsumeQueue, int] = {}
        """Queues with an entry that has no record, and the first such queue offset."""

        self.corrected = 0
        """Entries that were written again."""

        self._files = files
        self._queues = queues
        self._tags = tags
        self._has_addresses = has_addresses
        self._add_note = add_note
        self._entries_left = CHECKED_ENTRIES
        self._bytes_left = SEARCHED_BYTES

    def run(self, until: int) -> None:
        """Check queues whose last record lies before `until`."""
        ends = attrgetter("end_physical")
        for queue in nlargest(CHECKED_QUEUES, self._queues, key=ends):
            if self._files.min_offset < queue.end_physical <= until:
                self._check_queue(queue)

    def correct_entry(
        self, queue: ConsumeQueue, queue_offset: int, after: int, place: int, code: int
    ) -> bool:
        """Write one entry of an open store again from its record; False without one.

        The entry has `place` and `code`. A record begins at the offset `after`, before
        the record of the entry. For a worker.
        """
        self._bytes_left = SEARCHED_WHILE_RUNNING
        record = self._find_record(queue, queue_offset, place, after)
        if record is not None:
            code = self._code_of(queue, record, code)
            offset = record.physical_offset
            queue.write_entry(queue_offset, offset, record.size, code)
        return record is not None

    def _check_queue(self, queue: ConsumeQueue) -> None:
        if not queue.is_batch:
            self._check_entries(queue)
        elif names_record(self._files, queue, queue.start_before(queue.next_offset)):
            self.proven_end = max(self.proven_end, queue.end_physical)

    def _check_entries(self, queue: ConsumeQueue) -> None:
        """Check and correct entries."""
        limit = SMALL_FILE if self._entries_left >= SMALL_FILE else 1
        first, data = queue.last_entries(limit)
        entries = memoryview(data)
        count = len(data) // ENTRY_SIZE
        self._entries_left -= count
        after, number = self._files.min_offset, 0
        while number < count:
            offset, size, code = _ENTRY.unpack_from(data, number * ENTRY_SIZE)
            rest = entries[number * ENTRY_SIZE :]
            done = self._count_right(queue, rest, first + number)
            if done:
                number += done
                offset, size, _ = _ENTRY.unpack_from(data, (number - 1) * ENTRY_SIZE)
                if size != FILLER_SIZE and offset >= self._files.min_offset:
                    after = offset + size
                    self.proven_end = max(self.proven_end, after)
                continue
            record = self._find_record(queue, first + number, offset, after)
            if record is not None:
                self._correct_entry(queue, first + number, record, code)
                after = record.physical_offset + record.size
                self.proven_end = max(self.proven_end, after)
            elif queue not in self.unproven:
                self.unproven[queue] = first + number
                self._add_note(
                    f"{queue.folder}: the entry of queue offset {first + number} "
                    f"names {size} bytes at {offset} of the log, where there is no "
                    "such record: one of them is damaged, see `rmq store verify`"
                )
            number += 1

    def _count_right(self, queue: ConsumeQueue, entries: memoryview, first: int) -> int:
        """Return the number of right entries: expired entries, fillers, and entries
        with their records.

        0 only if the first one is wrong.
        """
        offset, size, _ = _ENTRY.unpack_from(entries)
        if size == FILLER_SIZE or 0 <= offset < self._files.min_offset:
            return 1
        file = self._files.find(offset)
        if file is None:
            return 0
        topic = queue.topic_bytes
        has_tags = topic != SCHEDULE_TOPIC and not self._has_addresses(queue.topic)
        return count_matching(
            file,
            entries,
            topic,
            queue.queue_id,
            first,
            is_placed=not is_lmq(queue.topic),
            check_tags=has_tags,
        )

    def _find_record(
        self, queue: ConsumeQueue, queue_offset: int, offset: int, after: int
    ) -> WalkedRecord | None:
        """Return the record of a queue offset: at an offset, or later in the log."""
        file = self._files.find(offset)
        if file is not None:
            position = offset - file.base_offset
            _, _, records = walk_log(file, position, file.size, limit=1)
            if records and _is_of(records[0], queue, queue_offset):
                return records[0]
        for record in self._records_from(after):
            if _is_of(record, queue, queue_offset):
                return record
        return None

    def _records_from(self, offset: int) -> Iterator[WalkedRecord]:
        """Yield records up to the first damaged one, or until too much was read."""
        file = self._files.find(offset)
        while file is not None:
            position, status = offset - file.base_offset, RecordStatus.OK
            while status is RecordStatus.OK and position < file.size:
                start = position
                status, position, records = walk_log(
                    file, position, file.size, limit=WALKED_RECORDS
                )
                yield from records
                self._bytes_left -= position - start
                if self._bytes_left <= 0:
                    return
            if status not in (RecordStatus.OK, RecordStatus.BLANK):
                return
            offset = file.base_offset + file.size
            file = self._files.find(offset)

    def _correct_entry(
        self, queue: ConsumeQueue, queue_offset: int, record: WalkedRecord, code: int
    ) -> None:
        """Write the entry of a record again, durably."""
        queue.replace_entry(
            QueueOffset(queue_offset),
            PhysicalOffset(record.physical_offset),
            record.size,
            self._code_of(queue, record, code),
        )
        self.corrected += 1
        self._add_note(
            f"{queue.folder}: the entry of queue offset {queue_offset} was wrong and "
            f"was made again from the record at {record.physical_offset} of the log"
        )

    def _code_of(self, queue: ConsumeQueue, record: WalkedRecord, current: int) -> int:
        """Return the tags code of a record; `current` if it is an address."""
        if self._has_addresses(queue.topic):
            return current
        due = self._tags.due_time(record.topic, record.store_ms, record.properties)
        return record.tags_code if due is None else due


def _is_of(record: WalkedRecord, queue: ConsumeQueue, queue_offset: int) -> bool:
    if is_lmq(queue.topic):
        return (queue.topic, queue_offset) in stored_targets(record.properties)
    place = record.topic, record.queue_id, record.queue_offset
    return place == (queue.topic_bytes, queue.queue_id, queue_offset)


def names_record(
    files: MappedFileQueue, queue: ConsumeQueue, queue_offset: int
) -> bool:
    """Return whether an entry names a record of its size at its offset."""
    offset, size = queue.read_once(QueueOffset(queue_offset))
    if size == FILLER_SIZE:
        return True
    file: MappedFile | None = files.find(offset)
    position = 0 if file is None else offset - file.base_offset
    if file is None or position + RecordLayout.SYS_FLAG_AT > file.size:
        return False
    record = RecordView(file.read(position, RecordLayout.SYS_FLAG_AT))
    is_there = record.size == size and record.physical_offset == offset
    return is_there and (
        is_lmq(queue.topic)  # its records have offsets of other queues
        or (record.queue_id, record.queue_offset) == (queue.queue_id, queue_offset)
    )
