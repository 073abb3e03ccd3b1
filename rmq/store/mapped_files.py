"""MappedFileQueue: the files of one log, in the order of their offsets.

Layout: files of one size, named by their start offsets in 20 digits.  File k + 1 starts
where file k ends.  The files are in one folder or in several (`log_folders.py`).
Invariant: every file but the last is full.
Crash contract: an empty last file (created, not yet of its length) is removed at load.
A power cut may leave files empty that were never flushed. If the caller passes the
offset of the first such file, these files get their length. Any other length is an
error that names the file, because a wrong size setting looks the same.
"""

import itertools
from pathlib import Path

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.errors import CorruptLog
from rmq.core.segments import is_name
from rmq.store.allocate import FileAllocator
from rmq.store.log_folders import LogFolders


def log_paths(folders: LogFolders, size: int, flushed: int | None = None) -> list[Path]:
    """Return the files of the folders; check name, length and order.

    Files from `flushed` on may be empty.
    """
    paths = folders.list_files()
    if paths and paths[-1].stat().st_size == 0 and is_name(paths[-1].name):
        paths.pop().unlink()
    for path in paths:
        if not is_name(path.name):
            raise CorruptLog(str(path), 0, "its name is not an offset of 20 digits")
        length = path.stat().st_size
        is_unflushed = flushed is not None and int(path.name) >= flushed
        if length != size and not (length == 0 and is_unflushed):
            raise CorruptLog(
                str(path), 0, f"it has {length} bytes, the configured size is {size}"
            )
    for before, after in itertools.pairwise(paths):
        if int(after.name) == int(before.name):
            raise CorruptLog(
                str(after), 0, f"{before} has the same offset: keep one of the two"
            )
        if int(after.name) != int(before.name) + size:
            raise CorruptLog(
                str(after), 0, f"the file before it starts at {int(before.name)}"
            )
    return paths


class MappedFileQueue:
    """The mapped files of one log; `files` is in order."""

    def __init__(
        self, folders: LogFolders, size: int, allocator: FileAllocator
    ) -> None:
        self.folders = folders
        self.file_size = size
        self.files: list[MappedFile] = []
        self._allocator = allocator
        self._next: MappedFile | None = None

    def load(self, flushed: int | None = None) -> None:
        """Map all files; each counts as full until recovery finds the end.

        Empty files from `flushed` on get their length, filled with zeros.
        """
        for path in log_paths(self.folders, self.file_size, flushed):
            offset = int(path.name)
            is_unflushed = flushed is not None and offset >= flushed
            file = MappedFile(
                str(path), self.file_size, base_offset=offset, create=is_unflushed
            )
            file.assume_allocated(file.size)
            file.write_position = file.size
            file.assume_flushed(file.size)
            self.files.append(file)

    @property
    def min_offset(self) -> int:
        """Start of the first file; 0 without files."""
        return self.files[0].base_offset if self.files else 0

    @property
    def end_offset(self) -> int:
        """End of the written bytes."""
        if not self.files:
            return 0
        last = self.files[-1]
        return last.base_offset + last.write_position

    def find(self, offset: int) -> MappedFile | None:
        """Return the file that `offset` lies in."""
        if not self.files:
            return None
        index = (offset - self.files[0].base_offset) // self.file_size
        return self.files[index] if 0 <= index < len(self.files) else None

    def end_of(self, offset: int) -> int:
        """Return the end of the file that `offset` lies in."""
        return offset + self.file_size - (offset - self.min_offset) % self.file_size

    def roll(self, first: int = 0) -> MappedFile:
        """Start the next file, which may have been prepared ahead.

        `first` is the start of the very first file.
        """
        base_offset = first
        if self.files:
            base_offset = self.files[-1].base_offset + self.file_size
        file, self._next = self._next, None
        if file is not None and file.base_offset != base_offset:
            file.close()
            file = None
        if file is None:
            file = self._create(base_offset)
        assert file.base_offset == base_offset, file.path
        assert file.write_position == 0, file.path
        self.files.append(file)
        return file

    @property
    def wants_next(self) -> bool:
        """True if the next file will be needed soon and is not prepared."""
        if not self.files:
            return False
        last, prepared = self.files[-1], self._next
        if prepared is not None and prepared.base_offset > last.base_offset:
            return False
        return self._allocator.is_near_end(last)

    def prepare_next(self) -> None:
        """Create the next file ahead of its use; a worker thread may call this.

        The writer may create the same file meanwhile. Then this mapping is a second one
        of a file in use: it is closed, and the file is never removed.
        """
        if self.wants_next:
            base_offset = self.files[-1].base_offset + self.file_size
            self._next = self._create(base_offset)

    def _create(self, base_offset: int) -> MappedFile:
        folder = self.folders.folder_for(base_offset, self.file_size)
        return self._allocator.create(folder, base_offset, self.file_size)

    def take_prepared(self) -> list[MappedFile]:
        """Remove and return the file that was prepared ahead, if it was never used."""
        file, self._next = self._next, None
        if file is None:
            return []
        if any(used.base_offset == file.base_offset for used in self.files):
            file.close()
            return []
        return [file]

    def close(self) -> None:
        """Unmap everything; remove a file that was prepared ahead but never used."""
        for file in self.take_prepared():
            file.unlink()
            file.close()
        for file in self.files:
            file.close()
        self.files.clear()
