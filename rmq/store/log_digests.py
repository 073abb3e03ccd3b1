"""LogDigests: finds blocks of the log that have other bytes than were written.

A worker seals a block of 64 KiB soon after the disk has it: it records the CRC-32 of
its bytes (`_fastpath/log/block_digests.pyx`). `LogReader` compares the blocks of every
record that is read, and the scrub compares blocks without readers. A block that differs
from its digest is *bad*: no reader gets its bytes unnoticed, and
`cluster/block_healing.py` copies the right bytes from another broker.

Layout: `digest/<20 digits>` for each file of the log, which Java ignores; all is
little-endian:
"RMQDIG01" · i64 offset of the file · i64 bytes of the file · i32 bytes of a block ·
i32 blocks with a digest · i64 time of the last scrub in ms · u32 CRC-32 of all else ·
u32 CRC-32 of each block
Invariants: only durable bytes before the end of the log have digests. Code that
truncates the log calls `cut_to` before the next append. Crash contract: a file has the
old or the new content. After a crash the blocks since the last save are sealed again,
after recovery has checked their records.
`update`, `repair` and the functions of the scrub block: for a worker. `cut_to` blocks,
too, and no other part uses the store meanwhile. Any thread may call `report`. The rest
belongs to the trio thread.
"""

import logging
import shutil
import struct
import threading
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import msgspec

from rmq._fastpath.log.block_digests import BLOCK_BYTES, BlockDigests
from rmq._fastpath.log.decode import decode_record
from rmq._fastpath.log.layout import RecordLayout
from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.clock import Clock
from rmq.core.errors import RecordDamaged
from rmq.core.files import replace_file, sync_directory
from rmq.core.offsets import PhysicalOffset
from rmq.core.segments import NAME_DIGITS, is_name
from rmq.store.commit_log import CommitLog
from rmq.store.config import OnDamage, StoreConfig
from rmq.store.damage import LogFiles
from rmq.store.patch import LogPatch
from rmq.store.positions import LogPositions
from rmq.store.recovery import RecoveryReport

logger = logging.getLogger(__name__)

_HEAD: Final = struct.Struct("<8sqqiiq")
_CRC: Final = struct.Struct("<I")
_MAGIC: Final = b"RMQDIG01"

CHANGED: Final = "have other bytes than were written"


class BadBlock(msgspec.Struct):
    """A block with other bytes than were written."""

    begin: PhysicalOffset
    end: int
    since_ms: int
    """When it was found, on the steady clock."""

    fault: str = CHANGED
    problem: str = ""
    """Why it is not healed; a clause."""

    def __str__(self) -> str:
        """One clause for people."""
        text = f"offsets {self.begin} to {self.end} {self.fault}"
        return f"{text}: {self.problem}" if self.problem else text


class _Saved(msgspec.Struct):
    """The content of one file of digests."""

    sealed: int = 0
    scrubbed_ms: int = 0


class LogDigests:
    """The digests of one log."""

    def __init__(
        self,
        root: Path,
        log: CommitLog,
        positions: LogPositions,
        clock: Clock,
        config: StoreConfig,
    ) -> None:
        self.bad: dict[int, BadBlock] = {}
        """Bad blocks, by the offset of their first byte."""

        self.has_peers: Callable[[], bool] = lambda: False
        """Whether another broker may give the bytes of a bad block."""

        self.on_bad: Callable[[], None] = lambda: None
        """Called in any thread after a block was found bad."""

        self.healed_bytes = 0
        self.passed_reads = 0
        """Messages of bad blocks that readers did not get."""

        self.doubtful_reads = 0
        """Messages of bad blocks that readers got, because the checksum of the message
        was right.
        """

        self.failures = 0
        """Blocks that were found bad since the start."""

        self._root = root
        self._folder = root / "digest"
        self._log = log
        self._positions = positions
        self._clock = clock
        self._config = config
        self.proven_from = 0
        """Offset from which blocks need no check of their records before they are
        sealed.
        """

        self.damaged_records: dict[int, str] = {}
        """A clause about the first damaged record of files without digests, by their
        offsets.
        """

        self.walked: dict[int, int] = {}
        """Ends of the records that the scrub has checked in files without digests."""

        self._lock = threading.Lock()
        """The lock of `update`, which two loops call."""

        self._saved: dict[int, _Saved] = {}
        log.reader.on_bad_block = self.report

    # -- start and end of the log

    def open(self, recovered: RecoveryReport, *, is_ours: bool) -> None:
        """Begin with the log that recovery has found; it blocks.

        Recovery has checked the records from its start offset on. If another program
        has used the log (`is_ours` is false), its blocks are sealed again.
        """
        self.proven_from = recovered.start_offset
        if not self._config.has_log_digests or not is_ours:
            shutil.rmtree(self._folder, ignore_errors=True)
        self.cut_to(recovered.end_offset)

    def cut_to(self, end: int) -> None:
        """Forget the blocks that are not complete before a new end, durably."""
        self.proven_from = min(self.proven_from, end)
        self.walked.clear()
        size = self._log.files.file_size
        bad = list(self.bad.items())  # readers in other threads add to it
        self.bad = {at: block for at, block in bad if block.end <= end}
        self.damaged_records = {
            base: text
            for base, text in self.damaged_records.items()
            if base + size <= end
        }
        for file in self._log.files.files:
            if file.digests is not None:
                file.digests.truncate(end - file.base_offset)
        for path in self._list_files():
            base = int(path.name)
            if base + size > end:
                self._cut_file(path, base, max(0, end - base) // BLOCK_BYTES)

    def _cut_file(self, path: Path, base: int, most: int) -> None:
        """Keep the first digests of a file only, durably."""
        file_size = self._log.files.file_size
        found = read_digests(path.read_bytes(), base, file_size)
        digests = b"" if found is None else found[0]
        if len(digests) <= most * _CRC.size and digests:
            return
        saved = self._saved.setdefault(base, _Saved())
        saved.sealed, saved.scrubbed_ms = min(saved.sealed, most), 0
        kept = digests[: most * _CRC.size]
        replace_file(path, encode_digests(kept, base, file_size, 0))

    def forget_all(self) -> None:
        """Begin without a log: its files were moved away."""
        self.bad.clear()
        self.damaged_records.clear()
        self.walked.clear()
        self._saved.clear()
        self.proven_from = 0

    def forget_before(self, start: PhysicalOffset) -> None:
        """Forget the findings about files that have expired."""
        for known in self.bad, self.damaged_records, self.walked:
            for offset in [each for each in list(known) if each < start]:
                del known[offset]

    def _list_files(self) -> list[Path]:
        if not self._folder.is_dir():
            return []
        return [path for path in self._folder.iterdir() if is_name(path.name)]

    def load(self) -> None:
        """Read the digests of all files, before the first reader outside of a start.

        A start reads without them, because it cannot wait for bytes of another broker.
        """
        saved = {int(path.name) for path in self._list_files()}
        for file in self._log.files.files:
            if file.base_offset in saved and file.digests is None:
                file.digests = self._load(file)

    # -- the worker

    def update(self, *, saves_all: bool = False) -> None:
        """Read the digests of files, and seal blocks that are durable.

        It saves the digests of full files, with `saves_all` of all files.
        """
        if self._config.has_log_digests:
            with self._lock:
                self._update(saves_all=saves_all)

    def _update(self, *, saves_all: bool) -> None:
        files = list(self._log.files.files)
        for file in files:
            if file.digests is None:
                file.digests = self._load(file)
            if file.digests.sealed < file.digests.count:
                self._seal_blocks(file, file.digests)
            saved = self._saved.setdefault(file.base_offset, _Saved())
            is_full = file.digests.sealed == file.digests.count
            if file.digests.sealed > saved.sealed and (is_full or saves_all):
                self._save(file, file.digests, saved)
        known = {file.base_offset for file in files}
        for base in [each for each in self._saved if each not in known]:
            self._path_of(base).unlink(missing_ok=True)
            del self._saved[base]

    def _path_of(self, base: int) -> Path:
        return self._folder / f"{base:0{NAME_DIGITS}d}"

    def _load(self, file: MappedFile) -> BlockDigests:
        """Return the saved digests of a file; none if there are no valid ones."""
        path = self._path_of(file.base_offset)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return BlockDigests(file.size)
        found = read_digests(data, file.base_offset, file.size)
        if found is None:
            logger.warning("%s is damaged and is made again", path)
            return BlockDigests(file.size)
        digests, scrubbed_ms = found
        sealed = len(digests) // _CRC.size
        self._saved[file.base_offset] = _Saved(sealed, scrubbed_ms)
        return BlockDigests(file.size, digests)

    def _seal_blocks(self, file: MappedFile, digests: BlockDigests) -> None:
        """Seal the next blocks, whose records recovery or an append has checked."""
        durable = self._positions.durable.value
        while digests.sealed < digests.count:
            begin = file.base_offset + digests.sealed * BLOCK_BYTES
            end = min(begin + BLOCK_BYTES, file.base_offset + file.size)
            if end > durable or begin < self.proven_from:
                return
            data = self._read_written(PhysicalOffset(begin), end - begin)
            if data is None:
                return
            with data:
                digests.seal_next(data)

    def _read_written(self, offset: PhysicalOffset, size: int) -> memoryview | None:
        """Return bytes of the log from the ring or a file; None if they are gone."""
        found = self._log.reader.read_extent(offset, size, is_shared=True)
        if found is None or found[1] < offset + size:
            return None
        extent = found[0]
        begin = offset - extent.base_offset
        try:
            # extents are buffers; their stub cannot show it before Python 3.12
            view = memoryview(extent)  # type: ignore[arg-type]
            return view[begin : begin + size]
        except BufferError:  # the file was closed
            return None

    def _save(self, file: MappedFile, digests: BlockDigests, saved: _Saved) -> None:
        data = digests.to_bytes()
        if digests.sealed == digests.count and not saved.scrubbed_ms:
            saved.scrubbed_ms = self._clock.now_ms()  # sealing is a check
        place = file.base_offset, file.size, saved.scrubbed_ms
        replace_file(self._path_of(file.base_offset), encode_digests(data, *place))
        saved.sealed = len(data) // _CRC.size

    # -- the scrub, in a worker

    def scrubbed_ms(self, base: int) -> int:
        """Return when a file was scrubbed last; 0: never."""
        saved = self._saved.get(base)
        return 0 if saved is None else saved.scrubbed_ms

    def mark_scrubbed(self, file: MappedFile, now_ms: int) -> None:
        """Save that all blocks of a file were compared."""
        with self._lock:
            saved = self._saved.setdefault(file.base_offset, _Saved())
            saved.scrubbed_ms = now_ms
            if file.digests is not None:
                self._save(file, file.digests, saved)

    def seal_proven(self, file: MappedFile, end: int) -> None:
        """Seal the blocks of a file before a position: their records are right."""
        with self._lock:
            digests = file.digests
            while digests is not None and digests.sealed < digests.count:
                begin = digests.sealed * BLOCK_BYTES
                size = min(BLOCK_BYTES, file.size - begin)
                if begin + size > end:
                    return
                with file.view(begin, size) as view:
                    digests.seal_next(view)

    # -- bad blocks

    def first_bad(self, runs: Iterable[tuple[int, int]]) -> BadBlock | None:
        """Return the first bad block in ranges (offset, size) of the log; None if there
        is none.
        """
        for offset, size in runs:
            found = self._log.reader.find_bad(offset, size)
            if found >= 0:
                return self.bad.get(found)
        return None

    def report(self, begin: int, fault: str = CHANGED) -> None:
        """Record that the block at an offset is bad, unless its file has expired."""
        file = self._log.files.find(begin)
        if begin in self.bad or file is None:
            return
        end = min(begin + BLOCK_BYTES, file.base_offset + file.size)
        block = BadBlock(PhysicalOffset(begin), end, self._clock.steady_ms(), fault)
        self.bad[begin] = block
        self.failures += 1
        logger.error("%s: %s", self._log.files.folders, block)
        self.on_bad()

    def is_hopeless(self, block: BadBlock) -> bool:
        """Whether the bytes of a block may not come any more."""
        patience_ms = self._config.damage_patience_ms
        waited_ms = self._clock.steady_ms() - block.since_ms
        return not self.has_peers() or 0 < patience_ms <= waited_ms

    def read_damaged(self, error: RecordDamaged, size: int = 0) -> bytes | None:
        """Return a record in a bad block if its own checksum is right; else None.

        Raise the error again while another broker may give the bytes. Without `size`,
        the first field of the record has the size.
        """
        block = self.bad.get(error.block)
        if block is not None:
            if not self.is_hopeless(block):
                raise error
            if self._config.on_damage is OnDamage.STOP:
                raise RecordDamaged(error.offset, error.block, is_healing=False)
        read, offset = self._log.reader.read_damaged, error.offset
        try:
            if not size:
                head = read(offset, RecordLayout.BLANK_SIZE) or b""
                size = int.from_bytes(head[:4], "big")
            data = read(offset, size)
        except OSError:  # the disk cannot read it
            data = None
        if data is None or not self._is_whole_record(data, PhysicalOffset(offset)):
            self.passed_reads += 1
            return None
        self.doubtful_reads += 1
        return data

    def _is_whole_record(self, data: bytes, offset: PhysicalOffset) -> bool:
        """Return whether bytes are one record, with its checksums, for an offset."""
        try:
            record = decode_record(data, check_crc=max(1, self._config.crc_checks))
        except ValueError:
            return False
        return (record.size, record.physical_offset) == (len(data), offset)

    def repair(self, begin: PhysicalOffset, data: bytes) -> bool:
        """Write the bytes of a block, durably; False if they do not match the digest.

        For a worker; then the trio thread calls `end_repair` for a block that is bad.
        """
        file = self._log.files.find(begin)
        if file is None or file.digests is None:
            return False
        position = begin - file.base_offset
        number = position // BLOCK_BYTES
        size = min(BLOCK_BYTES, file.size - position)
        if not matches_digest(file.digests, number, size, data):
            return False
        files = LogFiles(self._log.files.folders, file.size)
        patch = LogPatch(files, self._root / "damaged")
        patch.keep(begin, begin + size)
        patch.write(begin, memoryview(data))
        patch.sync()
        with file.view(position, len(data)) as view:
            return file.digests.check_bytes(number, view)

    def end_repair(self, block: BadBlock, source: str) -> None:
        """Record that a block has its bytes again, from a broker."""
        self.bad.pop(block.begin, None)
        self.healed_bytes += block.end - block.begin
        logger.warning(
            "%s: offsets %d to %d have the bytes of %s now",
            self._log.files.folders,
            block.begin,
            block.end,
            source,
        )


def matches_digest(digests: BlockDigests, number: int, size: int, data: bytes) -> bool:
    """Return whether these are the sealed bytes of a block of a size."""
    return len(data) == size and digests.fits(number, data)


def encode_digests(
    digests: bytes, base: int, file_size: int, scrubbed_ms: int
) -> bytes:
    """Return the bytes of a file of digests."""
    sealed = len(digests) // _CRC.size
    head = _HEAD.pack(_MAGIC, base, file_size, BLOCK_BYTES, sealed, scrubbed_ms)
    return head + _CRC.pack(zlib.crc32(digests, zlib.crc32(head))) + digests


def read_digests(data: bytes, base: int, file_size: int) -> tuple[bytes, int] | None:
    """Return the digests in the bytes of a file, and the time of its last scrub.

    None if they are damaged, or of another log file.
    """
    at = _HEAD.size + _CRC.size
    if len(data) < at:
        return None
    head, digests = data[: _HEAD.size], data[at:]
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    if crc != zlib.crc32(digests, zlib.crc32(head)):
        return None
    *place, sealed, scrubbed_ms = _HEAD.unpack(head)
    if place != [_MAGIC, base, file_size, BLOCK_BYTES]:
        return None
    return (digests, scrubbed_ms) if len(digests) == sealed * _CRC.size else None


def remove_digests(root: Path, begin: int, end: int, file_size: int) -> None:
    """Remove, durably, the digests of the files that have a range of the log."""
    folder = root / "digest"
    if not folder.is_dir():
        return
    for base in range(begin - begin % file_size, end, file_size):
        (folder / f"{base:0{NAME_DIGITS}d}").unlink(missing_ok=True)
    sync_directory(folder)
