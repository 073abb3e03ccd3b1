"""NotInMemory: a read that would have to wait for the disk, and how to make it ready.

The thread that owns the store must not wait for pages: it is told what is missing, has
a worker thread read that into the page cache, and asks again.
"""

import os
from collections.abc import Iterable

from rmq._fastpath import MappedFile

READ_AHEAD = 512 * 1024
"""Who reads old messages will want the next ones too."""

_PART_SIZE = 128 * 1024


class NotInMemory(Exception):
    """Raised instead of reading from the disk."""

    def __init__(self, ranges: Iterable[tuple[MappedFile, int, int]]) -> None:
        self._ranges = list(ranges)
        super().__init__(f"{len(self._ranges)} ranges are not in memory")

    def load(self) -> None:
        """Read the ranges into the page cache; for a worker thread."""
        for file, position, size in self._ranges:
            try:
                file.hold()
            except ValueError:
                continue  # it was deleted in the meantime
            try:
                _load(file, position, min(file.size, position + max(size, READ_AHEAD)))
            finally:
                file.release()


def _load(file: MappedFile, position: int, end: int) -> None:
    while position < end:
        os.pread(file.fd, min(_PART_SIZE, end - position), position)
        position += _PART_SIZE
