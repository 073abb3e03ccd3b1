"""CommitLog: all records of all topics, in the order of arrival.

Layout: files of one size (`mapped_files.py`) of records (`_fastpath/layout.pxd`); a
record that does not fit with 8 bytes to spare goes to the next file, and a blank record
ends this one.  A client batch is never split.
Invariant: bytes after `end_offset` are zero.
Crash contract: after a kill all appended records are complete; after a power cut those
below the durable offset are complete, and recovery cuts the rest.  With a staging pool
a kill loses uncommitted bytes.  `durability.py` has these offsets.
Appends come from the trio thread; `allocate_ahead` from a worker; `commit_staged` and
`flush` from `Durability`, one at a time each.
"""

import os

from rmq._fastpath import (
    LogTail,
    MappedFile,
    RecordEncoder,
    RecordLayout,
    RecordView,
    Watermark,
)
from rmq.store.allocate import FileAllocator
from rmq.store.mapped_files import MappedFileQueue
from rmq.store.staging_pool import StagingPool

WINDOW_SIZE = 64 << 20

_BLANK = int(RecordLayout.BLANK_SIZE)


class CommitLog(LogTail):
    """Known in Java as `CommitLog`, without its dispatcher."""

    def __init__(
        self,
        files: MappedFileQueue,
        allocator: FileAllocator,
        encoder: RecordEncoder,
        pool: StagingPool | None = None,
    ) -> None:
        super().__init__(encoder)
        self.files = files
        self._allocator = allocator
        self._folder_descriptor = -1
        self._pool = pool

    @property
    def is_empty(self) -> bool:
        """True before the first record."""
        return not self.files.files

    @property
    def min_offset(self) -> int:
        """Offset of the first record."""
        return self.files.min_offset

    def open_end(self) -> None:
        """Continue at the end that recovery found.

        The folder stays open, so that making the name of a new file durable cannot fail
        for lack of a descriptor.
        """
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        self._folder_descriptor = os.open(self.files.folder, flags)
        self.file = self.files.files[-1] if self.files.files else None
        if self.file is not None:
            self.file.expect_writes(writing=True)

    def make_room(self, size: int) -> MappedFile:
        """Return the file that `size` bytes go to; DiskFull if there are no blocks."""
        file = self.file
        if file is None or file.write_position + size + _BLANK > file.size:
            file = self._roll(file)
        end = file.write_position + size
        if end > file.allocated:
            self._allocator.ensure(file, end)
        return file

    def fits(self, size: int) -> bool:
        """True if a file can hold `size` bytes at all."""
        return size + _BLANK <= self.files.file_size

    def _roll(self, file: MappedFile | None) -> MappedFile:
        """End this file with a blank record and begin the next.

        A later call continues after a failure at any step: the blank record is written
        first, so that all files before an existing file are full.
        """
        if file is not None and file.write_position < file.size:
            rest = file.size - file.write_position
            self._allocator.ensure(file, file.write_position + _BLANK)
            self.encoder.discard()
            self.encoder.stage_blank(rest)
            self.encoder.commit(file, self.always_pwrite)
            file.write_position = file.size
            file.expect_writes(writing=False)
        self.file = self.files.roll()
        if self._pool is not None:
            self._pool.lend(self.file)
        return self.file

    def read(self, offset: int, size: int) -> bytes | None:
        """Copy stored bytes; None if they are not all in one file, or only staged."""
        file = self.files.find(offset)
        if file is None:
            return None
        position = offset - file.base_offset
        if position + size > file.readable_position:
            return None
        return file.read(position, size)

    def record_size_at(self, offset: int) -> int:
        """Read the size of the record that starts at `offset`; 0 if there is none."""
        record = self._head_at(offset)
        if record is None or not record.is_message or record.physical_offset != offset:
            return 0
        return record.size

    def store_ms_at(self, offset: int) -> int:
        """Read the store time of the record at `offset`; 0 if it cannot be read."""
        record = self._head_at(offset)
        return 0 if record is None else record.store_ms

    def _head_at(self, offset: int) -> RecordView | None:
        data = self.read(offset, RecordLayout.HEAD_SIZE)
        return None if data is None else RecordView(data)

    def commit_staged(self) -> None:
        """Move staged bytes to the files."""
        for file in list(self.files.files):
            if file.is_staged:
                file.commit()
                if file.committed_position == file.size and self._pool is not None:
                    self._pool.take_back(file)

    def flush(self, durable: Watermark) -> None:
        """Wait for the disk and move `durable`, file by file."""
        for file in list(self.files.files):
            if file.flushed_position < file.readable_position:
                if not file.flushed_position:
                    os.fsync(self._folder_descriptor)
                file.flush(durable)

    @property
    def wants_look_ahead(self) -> bool:
        """True if half of the current window is used, or the file is near its end."""
        file = self.file
        return file is not None and (
            self._allocator.wants_more(file) or self._allocator.is_near_end(file)
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
        self.files.close()
        if self._folder_descriptor >= 0:
            os.close(self._folder_descriptor)
            self._folder_descriptor = -1


def memory_window(ratio: int) -> int:
    """Bytes at the end of the log that count as being in memory."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * ratio // 100
