"""NotInMemory: a read that would have to wait for the disk, and how to make it ready.

The thread that owns the store must not wait for pages: it is told what is missing, has
a worker thread read that into the page cache, and asks again.
"""

from collections.abc import Iterable
from contextlib import suppress

from rmq._fastpath import MappedFile

READ_AHEAD = 512 * 1024
"""Who reads old messages will want the next ones too."""


class NotInMemory(Exception):
    """Raised instead of reading from the disk."""

    def __init__(self, ranges: Iterable[tuple[MappedFile, int, int]]) -> None:
        """`ranges` are (file, position, size)."""
        self._ranges = list(ranges)
        super().__init__(f"{len(self._ranges)} ranges are not in memory")

    def load(self) -> None:
        """Read the ranges into the page cache; for a worker thread.

        Each is read with what follows it. What that covers, or what somebody else has
        read in the meantime, is not read again.
        """
        for file, position, size in self._ranges:
            with suppress(ValueError):  # it was deleted in the meantime
                if not file.is_resident(position, size):
                    end = min(file.size, position + max(size, READ_AHEAD))
                    file.load(position, end - position)
