from typing import Self, final

from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing

@final
class LogReader:
    """Reads the bytes of a log."""

    ring: TailRing | None
    def __new__(cls, files: list[MappedFile]) -> Self:
        """`files` are those of the log in order; their owner changes the list."""

    def read(self, offset: int, size: int) -> bytes | None:
        """Return a copy of appended bytes; None if they are not all in one file."""

    def read_record(self, offset: int) -> bytes | None:
        """Return a copy of the record at `offset`, by the size in its first field.

        None if it is not all in one file. The record is not checked.
        """

    def find_missing(
        self, offset: int, size: int
    ) -> tuple[MappedFile, int, int] | None:
        """Return the (file, position, size) that is on the disk only, or None."""

    def read_extent(
        self, offset: int, limit: int, *, is_shared: bool = False
    ) -> tuple[Extent, int] | None:
        """Return an extent with whole records from `offset` on, and the end of the
        last.

        A copy has at most `limit` bytes and may end inside a record. With `is_shared`
        any thread may read it, else the store's thread until the next append. None if
        the log no longer has `offset`.
        """
