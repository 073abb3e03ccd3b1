"""Scrub: compares each sealed block of the log with its digest, within some days.

Readers check the blocks that they read. The scrub finds damage in blocks without
readers, while another broker still has the bytes. It reads without the page cache, so
it gets the bytes of the disk and evicts no pages. If the page cache has the right
bytes, they are written again. A block that the disk cannot read is as bad as a block
with other bytes. In blocks without a digest, such as those of an older store, the scrub
checks the records and adds a digest. It begins with these blocks, and with the newest
file.
`next_part` blocks: for a worker.
"""

import errno
import logging
import mmap
import os
from collections.abc import Iterator
from typing import Final, NamedTuple

from rmq._fastpath.log.block_digests import BLOCK_BYTES, BlockDigests
from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import walk_log
from rmq.config.option import DAY_MS
from rmq.core.clock import Clock
from rmq.core.offsets import PhysicalOffset
from rmq.store.commit_log import CommitLog
from rmq.store.config import StoreConfig
from rmq.store.damage import reason_of
from rmq.store.log_digests import CHANGED, LogDigests
from rmq.store.positions import LogPositions
from rmq.store.salvage import next_record

logger = logging.getLogger(__name__)

PART_BLOCKS: Final = 16
"""Blocks that are read at once: 1 MiB."""

WALKED_RECORDS: Final = 4_096
"""Maximum number of records that one step checks."""

WALKED_BYTES: Final = 4 << 20
"""Maximum size of the records that one step reads, unless a single record is larger."""

LONGEST_PAUSE_S: Final = 3_600.0
DAY_S: Final = 86_400

UNREADABLE: Final = "cannot be read from the disk"

_MAY_PASS: Final = frozenset(
    {errno.ENOENT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN}
)
"""Errors that the disk does not cause: the file was removed, or resources are
missing.
"""


class Part(NamedTuple):
    """The result of one step."""

    size: int
    is_urgent: bool = False
    """Whether the blocks had no digest, or their scrub is late."""


class Scrub:
    """The scrub of one log."""

    def __init__(
        self,
        log: CommitLog,
        digests: LogDigests,
        positions: LogPositions,
        clock: Clock,
        config: StoreConfig,
    ) -> None:
        self.read_bytes = 0
        """Bytes that were compared since the start."""

        self.oldest_ms = 0
        """Time of the last scrub of the file that has waited longest; 0 if it was never
        scrubbed.
        """

        self._crc_checks = max(1, config.crc_checks)
        self._late_ms = config.scrub_days * 2 * DAY_MS
        self._log = log
        self._digests = digests
        self._positions = positions
        self._clock = clock
        self._buffer = mmap.mmap(-1, PART_BLOCKS * BLOCK_BYTES)
        """Its pages stay: new ones for each part would take most of the time."""

        self._base = -1
        self._next_block = 0
        self._passed_ms: dict[int, int] = {}
        """Times of failed reads that the disk did not cause, by file."""

    @property
    def late_days(self) -> int:
        """Days since the last scrub of the file that has waited longest; 0 if it is not
        late.
        """
        waited_ms = self._clock.now_ms() - self.oldest_ms
        is_late = self.oldest_ms and self._late_ms and waited_ms > self._late_ms
        return waited_ms // DAY_MS if is_late else 0

    def next_part(self) -> Part:
        """Check the next blocks, and report bad ones; the part has 0 bytes if no block
        is due.
        """
        unsealed = self._find_unsealed()
        if unsealed is not None:
            return self._walk_part(*unsealed)
        file = self._log.files.find(self._base) if self._base >= 0 else None
        if file is None or file.digests is None:
            file = self._choose_file()
        if file is None or file.digests is None:
            return Part(0)
        try:
            return self._compare_part(file, file.digests)
        except OSError:
            self._passed_ms[self._base] = self._clock.now_ms()
            self._base = -1
            raise

    # -- blocks with digests

    def _choose_file(self) -> MappedFile | None:
        """Choose the file that has waited longest for a scrub."""
        scrubbed_ms, passed_ms = self._digests.scrubbed_ms, self._passed_ms
        bases = [
            file.base_offset
            for file in list(self._log.files.files)
            if file.digests is not None and file.digests.sealed
        ]
        if not bases:
            return None
        self.oldest_ms = min(map(scrubbed_ms, bases))
        self._base = min(
            bases, key=lambda base: max(scrubbed_ms(base), passed_ms.get(base, 0))
        )
        self._next_block = 0
        return self._log.files.find(self._base)

    def _compare_part(self, file: MappedFile, digests: BlockDigests) -> Part:
        first = self._next_block
        end = min(first + PART_BLOCKS, digests.sealed)
        file.acquire()
        try:
            for number, data in _read_blocks(file, first, end, self._buffer):
                self._compare(file, digests, number, data)
        finally:
            file.release()
        self._next_block = end
        if end >= digests.sealed:
            self._digests.mark_scrubbed(file, self._clock.now_ms())
            self._passed_ms.pop(self._base, None)
            self._base = -1
        size = min(end * BLOCK_BYTES, file.size) - first * BLOCK_BYTES
        self.read_bytes += size
        return Part(size, is_urgent=self.late_days > 0)

    def _compare(
        self, file: MappedFile, digests: BlockDigests, number: int, data: memoryview
    ) -> None:
        """Compare a block, of which the disk has this data; report it if it is bad."""
        if data and digests.fits(number, data):
            return
        begin, end = _range_of(file, number)
        offset = file.base_offset + begin
        if not self._digests.repair(
            PhysicalOffset(offset), _read_memory(file, begin, end - begin)
        ):
            self._digests.report(offset, CHANGED if data else UNREADABLE)
            return
        logger.warning(
            "%s: the bytes %d to %d on the disk differed from the written bytes; the "
            "right bytes were still in memory, and were written again",
            file.path,
            offset,
            file.base_offset + end,
        )

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
        base = file.base_offset
        file.acquire()
        try:
            begin, end, fault = self._walk(file, digests.sealed * BLOCK_BYTES)
        except OSError as error:
            if error.errno in _MAY_PASS:
                raise
            begin = end = max(
                self._digests.walked.get(base, 0), digests.sealed * BLOCK_BYTES
            )
            fault = UNREADABLE
        finally:
            file.release()
        if fault:
            reason = f"the record at {base + end} {fault}"
            self._digests.damaged_records[base] = reason
            logger.error("%s: %s", file.path, reason)
        self._digests.walked[base] = end
        self._digests.seal_proven(file, end)
        if fault or digests.sealed == digests.count:
            self._digests.walked.pop(base, None)
        return Part(end - begin, is_urgent=True)

    def _walk(self, file: MappedFile, sealed: int) -> tuple[int, int, str]:
        """Return where checked records begin and end, and what is wrong after them.

        Direct reads come first: access to a mapped page that the disk cannot read would
        end the process.
        """
        limit = min(file.size, file.write_position)
        begin = self._digests.walked.get(file.base_offset, sealed)
        is_known = not sealed or file.base_offset in self._digests.walked
        window, is_short = WALKED_BYTES, True
        while is_short:
            stop = min(limit, begin + window)
            file.load(begin, stop - begin)
            if not is_known:
                found = next_record(file, begin, limit)
                begin, is_known = limit if found is None else found, True
                stop = max(begin, stop)
            status, end, _ = walk_log(
                file, begin, stop, check_crc=self._crc_checks, limit=WALKED_RECORDS
            )
            is_short = status is RecordStatus.SHORT and end == begin and stop < limit
            window *= 2
        if status is RecordStatus.BLANK:
            return begin, file.size, ""
        is_damaged = status is not RecordStatus.OK and end == begin
        return begin, end, f"is damaged ({reason_of(status)})" if is_damaged else ""


def _range_of(file: MappedFile, number: int) -> tuple[int, int]:
    """Return the positions of a block in its file."""
    begin = number * BLOCK_BYTES
    return begin, min(begin + BLOCK_BYTES, file.size)


def _read_blocks(
    file: MappedFile, first: int, end: int, buffer: mmap.mmap
) -> Iterator[tuple[int, memoryview]]:
    """Yield blocks as the disk has them, in a buffer until the next step; no bytes for
    blocks that it cannot read.
    """
    begin, stop = first * BLOCK_BYTES, min(end * BLOCK_BYTES, file.size)
    data = _try_read(file.path, begin, stop - begin, buffer)
    for number in range(first, end):
        at, after = _range_of(file, number)
        if data:
            yield number, data[at - begin : after - begin]
        else:
            yield number, _try_read(file.path, at, after - at, buffer)


def _try_read(path: str, position: int, size: int, buffer: mmap.mmap) -> memoryview:
    """Return bytes of a file as the disk has them; none if it cannot read them."""
    done = 0
    try:
        done = read_disk(path, position, size, buffer)
    except OSError as error:
        if error.errno in _MAY_PASS:
            raise
    return memoryview(buffer)[: size if done == size else 0]


def _read_memory(file: MappedFile, position: int, size: int) -> bytes:
    """Return bytes of a file as the page cache has them; none without them."""
    try:
        return os.pread(file.fd, size, position)
    except OSError:
        return b""


def read_disk(path: str, position: int, size: int, buffer: mmap.mmap) -> int:
    """Read bytes of a file as the disk has them, past the page cache if it can; return
    their number. Direct reads need the aligned memory of a map.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT | os.O_CLOEXEC)
    except OSError:  # a file system in memory
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    done = 0
    try:
        with memoryview(buffer) as view:
            while done < size:
                got = os.preadv(descriptor, [view[done:size]], position + done)
                if got <= 0:
                    break
                done += got
    finally:
        os.close(descriptor)
    return done


def pause_s(part: Part, total: int, days: float, bytes_per_s: int) -> float:
    """Return the time until the next part, so that all is read within the days."""
    least_s = part.size / bytes_per_s
    if part.is_urgent or not total:
        return least_s
    return max(least_s, min(LONGEST_PAUSE_S, part.size / total * days * DAY_S))
