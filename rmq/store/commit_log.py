"""CommitLog: all records of all topics, in the order of arrival.

Layout: files of one size (`mapped_files.py`) of records (`log/layout.pxd`).  A record
that does not fit with 8 bytes to spare goes to the next file. A blank record then ends
the current file. A client batch is never split.
Invariant: bytes after `end_offset` are zero.
Crash contract: after a kill all appended records are complete. After a power cut the
records below the durable offset (`positions.py`) are complete, and recovery truncates
the log after them. With a ring the files have the bytes before *written*, and a kill
leaves the later bytes in the ring. The trio thread appends, a worker calls
`allocate_ahead`, and `Durability` calls `flush`, one call at a time.
"""

import logging
import os

from rmq._fastpath.log.decode import RecordView
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.flush_times import FlushTimes
from rmq._fastpath.log.layout import RecordLayout
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.log.tail_ring import TailRing
from rmq._fastpath.log.watermark import Watermark
from rmq.core.errors import DiskBusy
from rmq.core.offsets import PhysicalOffset
from rmq.store.allocate import FileAllocator
from rmq.store.mapped_files import MappedFileQueue

logger = logging.getLogger(__name__)

WINDOW_SIZE = 64 << 20

_BLANK = int(RecordLayout.BLANK_SIZE)
_BLOCK_SIZE = 4096
"""Block size of direct writes. If the file size is no multiple of it, the log is
written through the page cache.
"""


class CommitLog(LogTail):
    """Known in Java as `CommitLog`, without its dispatcher."""

    def __init__(
        self, files: MappedFileQueue, allocator: FileAllocator, encoder: RecordEncoder
    ) -> None:
        super().__init__(encoder)
        self.files = files
        self._allocator = allocator
        self._descriptors: dict[str, int] = {}
        """Open folders by path."""

        self.reads_ahead = True
        """Whether the kernel reads ahead in full files."""
        self.reader = LogReader(files.files)

    @property
    def is_empty(self) -> bool:
        """True before the first record."""
        return not self.files.files

    @property
    def min_offset(self) -> PhysicalOffset:
        """Offset of the first record."""
        return PhysicalOffset(self.files.min_offset)

    def open_end(self) -> None:
        """Continue at the end that recovery found, or in a new folder.

        The folders stay open, so that making the name of a new file durable cannot fail
        for lack of a descriptor.
        """
        self._close_folders()
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        for folder in self.files.folders.all:
            self._descriptors[str(folder)] = os.open(folder, flags)
        self.file = self.files.files[-1] if self.files.files else None
        if self.file is not None:
            self.file.expect_writes(writing=True)

    def start_ring(
        self,
        ring: TailRing,
        durable: Watermark,
        times: FlushTimes,
        *,
        is_durable: bool,
        interval_ms: int,
    ) -> None:
        """Append to a ring from now on; the caller runs `writer`.

        The ring begins with the block in which the log ends, because direct writes have
        whole blocks.
        """
        end, written = self.end_offset, ring.appended_offset
        assert written == end - end % _BLOCK_SIZE, f"{written} is not before {end}"
        if end > written:
            data = self.read(PhysicalOffset(written), end - written)
            assert data is not None, f"the log has no bytes at {written}"
            ring.add(data)
            ring.mark_written(end)
        self.writer = LogWriter(
            ring,
            durable,
            times,
            self._file_to_write,
            self._warn_of_buffered_writes,
            is_durable=is_durable,
            is_direct=self.files.file_size % _BLOCK_SIZE == 0,
            interval_ms=interval_ms,
        )
        self.reader.ring = ring

    def ring_begin(self) -> int:
        """Return the offset with which a ring begins."""
        return self.end_offset - self.end_offset % _BLOCK_SIZE

    def _file_to_write(self, offset: int) -> MappedFile:
        """Return the file of an offset; its name is durable before its bytes are."""
        file = self.files.find(offset)
        assert file is not None, f"the log has no file for {offset}"
        if not file.flushed_position and self.has_durable_writer:
            self._sync_name(file)
        return file

    def _sync_name(self, file: MappedFile) -> None:
        """Make the name of a file durable."""
        os.fsync(self._descriptors[os.path.dirname(file.path)])

    def _warn_of_buffered_writes(self) -> None:
        logger.warning(
            "the file system of %s refuses direct writes: the log is written through "
            "the page cache",
            self.files.folders,
        )

    def make_room(self, size: int) -> MappedFile:
        """Return the file that `size` bytes go to.

        DiskFull if there are no blocks, DiskBusy if the ring is full.
        """
        file = self.file
        is_over = file is None or file.write_position + size + _BLANK > file.size
        if self.writer is not None:
            rest = file.size - file.write_position if file and is_over else 0
            if self.writer.ring.free_size < rest + size:
                raise DiskBusy(f"the disk of {self.files.folders} is too slow")
        if file is None or is_over:
            file = self._roll(file)
        end = file.write_position + size
        if end > file.allocated:
            self._allocator.allocate_up_to(file, end)
        return file

    def allocate(self, file: MappedFile, end: int) -> None:
        """Give a file blocks up to `end`; DiskFull if there are none."""
        self._allocator.allocate_up_to(file, end)

    def next_file(self, first: int = 0) -> MappedFile:
        """Begin the file after the last file, which is full; a file at `first` if there
        is none.
        """
        self.file = self.files.roll(first)
        return self.file

    def fits(self, size: int) -> bool:
        """True if a file, and a part of the ring, can hold `size` bytes at all."""
        if self.writer is not None and size > self.writer.ring.margin:
            return False
        return size + _BLANK <= self.files.file_size

    def _roll(self, file: MappedFile | None) -> MappedFile:
        """End this file with a blank record and begin the next.

        A later call continues after a failure at any step.  The blank record is written
        first, so all files before an existing file are full.
        """
        if file is not None and file.write_position < file.size:
            self._allocator.allocate_up_to(file, file.write_position + _BLANK)
            self.end_file()
            self.expect_reads(file)
        self.file = self.files.roll()
        return self.file

    def expect_reads(self, file: MappedFile) -> None:
        """Advise the kernel that this file will only be read."""
        file.expect_writes(writing=not self.reads_ahead)

    def set_read_ahead(self, *, enabled: bool) -> None:
        """Let the kernel read ahead in full files, or only read the requested pages."""
        self.reads_ahead = enabled
        for file in self.files.files:
            if file is not self.file:
                self.expect_reads(file)

    def read(self, offset: PhysicalOffset, size: int) -> bytes | None:
        """Copy stored bytes; None if they are not all in one file.

        RecordDamaged if one of their blocks has other bytes than were written.
        """
        return self.reader.read(offset, size)

    def record_size_at(self, offset: PhysicalOffset) -> int:
        """Read the size of the record that starts at `offset`; 0 if there is none."""
        data = self.read(offset, RecordLayout.HEAD_SIZE)
        record = None if data is None else RecordView(data)
        if record is None or not record.is_message or record.physical_offset != offset:
            return 0
        return record.size

    def store_ms_at(self, offset: PhysicalOffset) -> int:
        """Read the store time of the record at `offset`; 0 if it cannot be read."""
        return self.reader.store_ms_at(offset)

    @property
    def has_durable_writer(self) -> bool:
        """Whether the bytes that the writer of the ring has written are on the disk."""
        return self.writer is not None and self.writer.is_durable

    def flush(self, durable: Watermark) -> None:
        """Wait for the disk and move `durable`, file by file."""
        written = self.end_offset
        if self.writer is not None:
            written = PhysicalOffset(self.writer.write_out())
        for file in list(self.files.files):
            position = min(file.write_position, written - file.base_offset)
            if file.flushed_position >= position:
                continue
            if self.has_durable_writer:
                file.assume_flushed(position)
                continue
            if not file.flushed_position:
                self._sync_name(file)
            file.flush(durable, position)

    @property
    def wants_look_ahead(self) -> bool:
        """True if half of the current window is used, or the next file is wanted."""
        file = self.file
        return file is not None and (
            self._allocator.wants_more(file) or self.files.wants_next
        )

    def allocate_ahead(self) -> None:
        """Prepare blocks and the next file ahead of the writer."""
        file = self.file
        if file is not None:
            self._allocator.run_ahead(file)
            self.files.prepare_next()

    def close(self) -> None:
        """Unmap everything; the caller has flushed."""
        self.file = None
        if self.writer is not None:
            self.writer.close_file()
        self.files.close()
        self._close_folders()

    def _close_folders(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)
        self._descriptors.clear()
