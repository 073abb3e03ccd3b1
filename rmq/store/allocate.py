"""FileAllocator: blocks ahead of the writer, so that no write meets a full disk.

A file has its exact length from the start and gets its blocks in windows.  The writer
allocates only if the worker was late; a full disk is an error before anything is
written. One lock: allocation of one file at a time, taken by the trio thread and the
worker, held for one fallocate (microseconds on file systems that can).
"""

import errno
import threading
from pathlib import Path

from rmq._fastpath import MappedFile
from rmq.errors import DiskFull, StoreError


class FileAllocator:
    """Known in Java as `AllocateMappedFileService`."""

    def __init__(self, window_size: int) -> None:
        self._window_size = window_size
        self._lock = threading.Lock()

    def create(self, folder: Path, base_offset: int, size: int) -> MappedFile:
        """Make the file that starts at `base_offset`, with its first window."""
        path = folder / f"{base_offset:020d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = MappedFile(str(path), size, base_offset=base_offset, create=True)
        except OSError as error:
            raise _as_store_error(error, path) from error
        file.expect_writes(writing=True)
        self.ensure(file, 1)
        return file

    def ensure(self, file: MappedFile, end: int) -> None:
        """Give the file blocks up to `end`, in whole windows."""
        if end <= file.allocated:
            return
        wanted = min(file.size, -(-end // self._window_size) * self._window_size)
        with self._lock:
            try:
                file.allocate(wanted)
            except OSError as error:
                raise _as_store_error(error, Path(file.path)) from error

    def wants_more(self, file: MappedFile) -> bool:
        """True once half of the last window is used."""
        half = file.write_position + self._window_size // 2
        return file.allocated < file.size and half > file.allocated

    def run_ahead(self, file: MappedFile) -> None:
        """Allocate the next window if it will be wanted soon."""
        if self.wants_more(file):
            self.ensure(file, file.allocated + 1)

    def is_near_end(self, file: MappedFile) -> bool:
        """True if the next file will be wanted soon."""
        return file.size - file.write_position < min(self._window_size, file.size // 2)


def _as_store_error(error: OSError, path: Path) -> StoreError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no disk space for {path}")
    return StoreError(f"cannot write {path}: {error.strerror}")
