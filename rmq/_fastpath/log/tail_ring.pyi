from typing import Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.extent import Extent

@final
class TailRing:
    """The ring of one run, or the one that an earlier run left."""

    path: str
    size: int
    margin: int
    begin: int
    def __new__(
        cls, path: str, generation: int, *, size: int = 0, begin: int = 0
    ) -> Self:
        """With `size` create the ring of a run whose log continues at `begin`.

        Without it open the ring of the run with this generation: ValueError if the file
        is another ring, OSError if there is no file.
        """

    @property
    def appended_offset(self) -> int:
        """*appended*: the next append begins here."""

    @property
    def written_offset(self) -> int:
        """*written*: the files of the log have all bytes before it."""

    @property
    def floor_offset(self) -> int:
        """Records that begin here or later are in the ring."""

    @property
    def free_size(self) -> int:
        """Number of bytes that may be appended now."""

    def add(self, data: Buffer) -> None:
        """Append bytes; ValueError without room for them."""

    def mark_written(self, offset: int) -> None:
        """Set *written*: the files have all bytes before `offset`."""

    def prepare_pages(self) -> None:
        """Populate pages ahead of *appended*; a worker thread calls it periodically.

        A first write to a page updates the file's time, and may wait for the journal.
        That holds for new pages, and for those that the kernel has written to the disk
        since the last lap.
        """

    def read_leftover(self, offset: int, limit: int) -> Extent | None:
        """Lend at most `limit` unchecked bytes of an earlier run at `offset`."""

    def read(self, offset: int, size: int) -> bytes:
        """Copy [offset, offset + size), which must be in the ring."""
