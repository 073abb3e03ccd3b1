"""NotInMemory: the error of a read that would wait for the disk; its `load` reads the
ranges.

The thread that owns the store must not wait for pages. It gets the ranges that are
missing in memory, and a worker thread reads these into the page cache. Then the thread
of the store repeats its read.
"""

from collections.abc import Iterable
from contextlib import suppress

from rmq._fastpath.log.mapped_file import MappedFile

READ_AHEAD = 512 * 1024
"""Bytes to read ahead: a reader of old messages needs the next messages, too."""


class NotInMemory(Exception):
    """Raised instead of reading from the disk."""

    def __init__(self, ranges: Iterable[tuple[MappedFile, int, int]]) -> None:
        """`ranges` are (file, position, size)."""
        self._ranges = list(ranges)
        super().__init__(f"{len(self._ranges)} ranges are not in memory")

    def load(self) -> None:
        """Read the ranges into the page cache; for a worker thread.

        Each range is read together with the bytes after it. Ranges that are in memory
        by then are not read again.
        """
        for file, position, size in self._ranges:
            with suppress(ValueError):  # it was deleted in the meantime
                if not file.is_resident(position, size):
                    end = min(file.size, position + max(size, READ_AHEAD))
                    _load(file, position, end - position)


def _load(file: MappedFile, position: int, size: int) -> None:
    """Read a range; a block that the disk cannot read is bad after it."""
    try:
        file.load(position, size)
    except OSError:
        if file.find_bad(position, size) < 0:
            raise
