"""Scrub: compares each sealed block of the log with its digest, within some days.

Readers check what they touch; damage in a block that has no reader is found here, while
another broker still has the bytes.  It reads past the page cache, so that it sees what
the disk has and evicts nothing.  If the page cache has the right bytes, they are
written again.
Blocks without a digest, as of a store from before, are checked by their records, and
get one.  That goes first, with the newest file first.
`next_part` blocks: for a worker.
"""

import logging
import mmap
import os
from typing import Final, NamedTuple

from rmq._fastpath.log.block_digests import BLOCK_BYTES, BlockDigests
from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.core.clock import Clock
from rmq.store.commit_log import CommitLog
from rmq.store.damage import reason_of
from rmq.store.log_digests import LogDigests
from rmq.store.positions import LogPositions
from rmq.store.salvage import next_record

logger = logging.getLogger(__name__)

PART_BLOCKS: Final = 16
"""Blocks that are read at once: 1 MiB."""

WALKED_RECORDS: Final = 4_096
"""Records that are checked at once, at most."""

LONGEST_PAUSE_S: Final = 3_600.0
DAY_S: Final = 86_400


class Part(NamedTuple):
    """The result of one step."""

    size: int
    bad: list[int]
    """Offsets of bad blocks."""

    is_urgent: bool = False
    """The blocks had no digest."""


class Scrub:
    """The scrub of one log."""

    def __init__(
        self,
        log: CommitLog,
        digests: LogDigests,
        positions: LogPositions,
        clock: Clock,
    ) -> None:
        self.read_bytes = 0
        """Bytes that were compared since the start."""

        self.oldest_ms = 0
        """Time of the scrub that is the longest ago; 0 before the first one."""

        self._log = log
        self._digests = digests
        self._positions = positions
        self._clock = clock
        self._base = -1
        self._next_block = 0
        self._walked: dict[int, int] = {}
        """Ends of the records that were checked in files without digests."""

    def next_part(self) -> Part:
        """Check the next blocks; of 0 bytes if there are none."""
        unsealed = self._find_unsealed()
        if unsealed is not None:
            return self._walk_part(*unsealed)
        file = self._log.files.find(self._base) if self._base >= 0 else None
        if file is None or file.digests is None:
            file = self._choose_file()
        if file is None or file.digests is None:
            return Part(0, [])
        return self._compare_part(file, file.digests)

    # -- blocks with digests

    def _choose_file(self) -> MappedFile | None:
        """Begin the file that was scrubbed the longest ago."""
        times = [
            (self._digests.scrubbed_ms(file.base_offset), file.base_offset)
            for file in list(self._log.files.files)
            if file.digests is not None and file.digests.sealed
        ]
        if not times:
            return None
        self.oldest_ms, self._base = min(times)
        self._next_block = 0
        return self._log.files.find(self._base)

    def _compare_part(self, file: MappedFile, digests: BlockDigests) -> Part:
        first = self._next_block
        end = min(first + PART_BLOCKS, digests.sealed)
        position = first * BLOCK_BYTES
        size = min(end * BLOCK_BYTES, file.size) - position
        data = read_disk(file.path, position, size) if size > 0 else b""
        bad = [
            file.base_offset + number * BLOCK_BYTES
            for number in range(first, end)
            if not self._is_right(file, digests, number, data, position)
        ]
        self._next_block = end
        if end >= digests.sealed:
            self._digests.mark_scrubbed(file, self._clock.now_ms())
            self._base = -1
        self.read_bytes += len(data)
        return Part(len(data), bad)

    def _is_right(
        self,
        file: MappedFile,
        digests: BlockDigests,
        number: int,
        data: bytes,
        position: int,
    ) -> bool:
        """Compare a block; `data` begins at a position of the file."""
        begin = number * BLOCK_BYTES
        end = min(begin + BLOCK_BYTES, file.size)
        if digests.fits(number, data[begin - position : end - position]):
            return True
        in_memory = file.read(begin, end - begin)
        if not self._digests.repair(file.base_offset + begin, in_memory):
            return False
        logger.warning(
            "%s: the bytes %d to %d on the disk differed from the written bytes; the "
            "right bytes were still in memory, and were written again",
            file.path,
            file.base_offset + begin,
            file.base_offset + end,
        )
        return True

    # -- blocks without digests

    def _find_unsealed(self) -> tuple[MappedFile, BlockDigests] | None:
        """Return the newest file with blocks that only their records can prove."""
        proven = self._digests.proven_from
        for file in reversed(list(self._log.files.files)):
            digests = file.digests
            if digests is None or file.base_offset in self._digests.damaged_records:
                continue
            begin = file.base_offset + digests.sealed * BLOCK_BYTES
            end = min(begin + BLOCK_BYTES, file.base_offset + file.size)
            if begin < min(proven, end) and end <= self._positions.durable.value:
                return file, digests
        return None

    def _walk_part(self, file: MappedFile, digests: BlockDigests) -> Part:
        """Check records, and seal the blocks that are whole."""
        base, begin = file.base_offset, digests.sealed * BLOCK_BYTES
        position = self._walked.get(base, 0 if not begin else -1)
        if position < 0:
            found = next_record(file, begin)
            position = file.size if found is None else found
        limit = min(file.size, file.write_position)
        status, end, _ = walk_log(file, position, limit, limit=WALKED_RECORDS)
        if status is RecordStatus.BLANK:
            end = file.size
        elif status is not RecordStatus.OK and end == position:
            reason = f"the record at {base + end} is damaged ({reason_of(status)})"
            self._digests.damaged_records[base] = reason
            logger.error("%s: %s", file.path, reason)
        self._walked[base] = end
        self._digests.seal_proven(file, end)
        if digests.sealed == digests.count:
            self._walked.pop(base, None)
        return Part(end - position, [], is_urgent=True)


def read_disk(path: str, position: int, size: int) -> bytes:
    """Return bytes of a file as the disk has them, past the page cache if it can."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:  # a file system in memory
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with mmap.mmap(-1, size) as buffer:  # aligned, as direct reads need it
            done = 0
            while done < size:
                with memoryview(buffer) as view:
                    got = os.preadv(descriptor, [view[done:]], position + done)
                if got <= 0:
                    break
                done += got
            return buffer[:done]
    finally:
        os.close(descriptor)


def pause_s(part: Part, total: int, days: float, bytes_per_s: int) -> float:
    """Return the time until the next part, so that all is read within the days."""
    least_s = part.size / bytes_per_s
    if part.is_urgent or not total:
        return least_s
    return max(least_s, min(LONGEST_PAUSE_S, part.size / total * days * DAY_S))
