from typing import Self, final

from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing

@final
class LogReader:
    """The one way to the bytes of a log."""

    ring: TailRing | None
    def __new__(cls, files: list[MappedFile]) -> Self:
        """`files` are those of the log, in order; their owner changes the list."""

    def read(self, offset: int, size: int) -> bytes | None:
        """Copy published bytes; None if they are not all in one file."""

    def read_record(self, offset: int) -> bytes | None:
        """Copy as many bytes as a record at `offset` says that it has.

        None if they are not all in one file; whether it is a record is not checked.
        """

    def find_missing(
        self, offset: int, size: int
    ) -> tuple[MappedFile, int, int] | None:
        """Return the (file, position, size) that only the disk has, or None."""

    def read_extent(
        self, offset: int, limit: int, *, is_shared: bool = False
    ) -> tuple[Extent, int] | None:
        """Lend whole records from `offset` on: an extent, and where they end.

        If it is a copy it has at most `limit` bytes, the last ones maybe of a part.
        With `is_shared` any thread may read them, else the store's thread until the
        next append.  None if `offset` is not in the log any more.
        """
