"""WrongEntries: queue entries that readers found wrong, and their correction.

Queue files have no checksum. But each record has its offset, size, queue and queue
offset. So a reader compares an entry from a file with its record before it sends bytes
(`LogReader.find_wrong_entry`). It reports an entry that differs here, and gets
`EntryDamaged` until a worker has written the entry again from its record. If the log
has no such record, readers skip the entry.
Belongs to the trio thread; a worker calls `correct_next`.
"""

import logging
from collections.abc import Callable
from typing import Final, NamedTuple

from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.scan import QueueScan
from rmq.core.errors import EntryDamaged, StoreError
from rmq.core.offsets import QueueOffset
from rmq.protocol.topics import is_lmq
from rmq.store.config import OnDamage, StoreConfig
from rmq.store.entry_check import EntryCheck
from rmq.store.queues.consume_queue import ConsumeQueue

logger = logging.getLogger(__name__)

MOST: Final = 10_000
"""Maximum number of reported entries; readers report the others again later."""

NEIGHBORS: Final = 64
"""Number of entries before a wrong one in which a right one is searched."""


class WrongEntry(NamedTuple):
    """An entry that is not the entry of its record."""

    queue: ConsumeQueue
    offset: QueueOffset
    start: int
    """A record begins at this offset of the log, before the record of the entry."""

    place: int
    """The offset of the log that the entry has."""

    code: int
    """The tags code that the entry has."""

    def __str__(self) -> str:
        """One clause for people."""
        return (
            f"the entry of queue offset {self.offset} in {self.queue.folder} is wrong"
        )


class WrongEntries:
    """The wrong queue entries of one store."""

    def __init__(
        self,
        config: StoreConfig,
        reader: LogReader,
        make_check: Callable[[], EntryCheck],
    ) -> None:
        self.corrected = 0
        """Entries that were written again since the start."""

        self.on_found: Callable[[], object] = bool
        """Called after a reader has reported an entry."""

        self.skipped = 0
        """Reads that skipped an entry without a record."""

        self._config = config
        self._reader = reader
        self._make_check = make_check
        self._found: dict[tuple[str, int, int], WrongEntry] = {}
        self._lost: dict[tuple[str, int, int], WrongEntry] = {}

    def find(
        self, queue: ConsumeQueue, offset: QueueOffset, scan: QueueScan, log_start: int
    ) -> int:
        """Return the number of the first wrong entry in a scan from `offset` on; -1 if
        there is none. Entries in memory are right.

        A scan that has examined no visible entry has met a wrong one.
        """
        if queue.is_batch or queue.entry_in_memory(offset) is not None:
            return -1
        if not scan.examined:
            return 0
        return self._find_in(queue, offset, scan.examined, scan.runs, log_start)

    def _find_in(
        self,
        queue: ConsumeQueue,
        offset: QueueOffset,
        count: int,
        runs: list[tuple[int, int]],
        log_start: int,
    ) -> int:
        entries = queue.read_entries(offset, count)
        number = -1 if is_lmq(queue.topic) else queue.queue_id
        return self._reader.find_wrong_entry(entries, number, offset, runs, log_start)

    def report(self, queue: ConsumeQueue, offset: QueueOffset, log_start: int) -> None:
        """Let the worker correct an entry; EntryDamaged until then.

        It returns if the log has no record of the entry, so that readers skip it.
        """
        key = queue.topic, queue.queue_id, int(offset)
        if key in self._lost and self._config.on_damage is OnDamage.SKIP:
            self.skipped += 1
            return
        if key not in self._found and key not in self._lost and len(self._found) < MOST:
            start = self._find_start(queue, offset, log_start)
            place, _, code = queue.entry_at(offset)
            found = WrongEntry(queue, offset, start, place, code)
            self._found[key] = found
            logger.error("%s: it is written again from its record", found)
            self.on_found()
        raise EntryDamaged(*key)

    def _find_start(self, queue: ConsumeQueue, offset: int, log_start: int) -> int:
        """Return the end of the record of an earlier entry, or the start of the log."""
        first = max(queue.low_offset, offset - NEIGHBORS)
        for number in range(offset - 1, first - 1, -1):
            before = QueueOffset(number)
            place, size, _ = queue.entry_at(before)
            runs: list[tuple[int, int]] = [(place, size)]
            is_there = size > 0 and place >= log_start
            if is_there and self._find_in(queue, before, 1, runs, log_start) < 0:
                return place + size
        return log_start

    @property
    def has_found(self) -> bool:
        """Whether an entry waits for its correction."""
        return bool(self._found)

    def correct_next(self) -> None:
        """Write a reported entry again, durably; without a record readers skip it.

        It blocks: for a worker.
        """
        key, entry = next(iter(self._found.items()))
        try:
            is_corrected = self._make_check().correct_entry(*entry)
        except ValueError as error:  # a file of the log was removed
            raise StoreError(str(error)) from error
        self.corrected += is_corrected
        if is_corrected:
            logger.warning("%s no longer: it was written again", entry)
        elif len(self._lost) < MOST:
            self._lost[key] = entry
            logger.error("%s, and the log has no record of it: it is skipped", entry)
        del self._found[key]

    def problems(self) -> list[str]:
        """Return a clause for each entry that is wrong now."""
        found = [*self._found.values(), *self._lost.values()]
        return [
            str(each)
            for each in found
            if each.queue.low_offset <= each.offset < each.queue.next_offset
        ]
