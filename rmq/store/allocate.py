"""FileAllocator: allocates blocks ahead of the writer, so that no write fails halfway.

A file has its exact length from the start and gets its blocks in windows. The writer
allocates only if the worker was late; a full disk is an error before any byte is
written. With `zeroes` the worker also writes zeros to its windows and waits for the
disk. An fdatasync of 4 KiB then takes 116 us instead of 272, because no block is new.
One lock: the trio thread and the worker allocate one file at a time. They hold the lock
for one window (microseconds if the file system supports fallocate) or while one part is
written with zeros.
"""

import errno
import os
import threading
from functools import partial
from pathlib import Path

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.errors import DiskFull, StoreError
from rmq.store.descriptors import NoRoom, Room

PART_SIZE = 1 << 20
"""Bytes that are zeroed at a time.

A writer that was faster than the worker allocates one part without zeros, because a
whole window takes 20 ms on tmpfs.
"""

_NO_ROOM = NoRoom()


class FileAllocator:
    """Known in Java as `AllocateMappedFileService`."""

    def __init__(
        self, window_size: int, *, zeroes: bool = False, room: Room = _NO_ROOM
    ) -> None:
        self._room = room
        self._window_size = window_size
        self._part_size = min(window_size, PART_SIZE)
        self._zeroes = zeroes
        self._lock = threading.Lock()

    def create(self, folder: Path, base_offset: int, size: int) -> MappedFile:
        """Create the file that starts at `base_offset`, with its first part."""
        path = folder / f"{base_offset:020d}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file = self._room.open(
                partial(
                    MappedFile, str(path), size, base_offset=base_offset, create=True
                )
            )
        except OSError as error:
            raise as_store_error(error, path) from error
        except ValueError as error:
            raise StoreError(f"{error}: move that file away") from error
        file.expect_writes(writing=True)
        self.allocate_up_to(file, 1)
        return file

    def allocate_up_to(self, file: MappedFile, end: int) -> None:
        """Allocate blocks for the file up to `end`, in whole parts."""
        if end <= file.allocated:
            return
        wanted = min(file.size, -(-end // self._part_size) * self._part_size)
        with self._lock:
            try:
                file.allocate(wanted)
            except OSError as error:
                raise as_store_error(error, Path(file.path)) from error

    def _ensure_zeroed(self, file: MappedFile, end: int) -> None:
        """Allocate blocks with zeros for the file, up to `end`.

        The writer may allocate blocks at the same time.

        A separate descriptor writes the zeros.  So the kernel reports an error of the
        disk to the flush of the file, too.
        """
        descriptor = self._room.open(
            partial(os.open, file.path, os.O_WRONLY | os.O_CLOEXEC)
        )
        try:
            while file.allocated < end:
                with self._lock:
                    start = file.allocated
                    stop = min(end, start + PART_SIZE)
                    write_zeros(descriptor, start, stop)
                    os.fdatasync(descriptor)
                    file.allocate(stop)
        except OSError as error:
            raise as_store_error(error, Path(file.path)) from error
        finally:
            os.close(descriptor)

    def wants_more(self, file: MappedFile) -> bool:
        """True once half of the last window is used."""
        half = file.write_position + self._window_size // 2
        return file.allocated < file.size and half > file.allocated

    def run_ahead(self, file: MappedFile) -> None:
        """Allocate the next window if it will be needed soon; a worker calls it."""
        if not self.wants_more(file):
            return
        window = self._window_size
        end = min(file.size, (file.allocated // window + 1) * window)
        if self._zeroes:
            self._ensure_zeroed(file, end)
        else:
            self.allocate_up_to(file, end)

    def is_near_end(self, file: MappedFile) -> bool:
        """True if the next file will be needed soon."""
        return file.size - file.write_position < min(self._window_size, file.size // 2)


def write_zeros(descriptor: int, start: int, stop: int) -> None:
    """Overwrite a range of a file."""
    zeros = bytes(stop - start)
    while start < stop:
        start += os.pwrite(descriptor, zeros[: stop - start], start)


def as_store_error(error: OSError, path: Path) -> StoreError:
    """Return DiskFull if the disk has no space, else StoreError with the reason."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"no disk space for {path}")
    return StoreError(f"cannot write {path}: {error.strerror}")
