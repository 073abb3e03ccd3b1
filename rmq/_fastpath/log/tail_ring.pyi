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
        """With `size` make the ring of a run whose log goes on at `begin`.

        Without it open the ring that the run of this generation left; ValueError if
        there is another one, OSError if there is none.
        """

    @property
    def appended_offset(self) -> int:
        """Where the next append goes."""

    @property
    def written_offset(self) -> int:
        """The files of the log have all bytes before it."""

    @property
    def floor_offset(self) -> int:
        """Records that begin here or later are in the ring."""

    @property
    def free_size(self) -> int:
        """Bytes that may be appended now."""

    def add(self, data: Buffer) -> None:
        """Append bytes; ValueError without room for them."""

    def mark_written(self, offset: int) -> None:
        """The files have all bytes before `offset`."""

    def prepare_pages(self) -> None:
        """Have writable pages ahead of the end; for a worker thread, now and then.

        A page that is new, or that the kernel has written to the disk since the last
        lap, needs an update of the file's time, and may wait for the journal.
        """

    def read_leftover(self, offset: int, limit: int) -> Extent | None:
        """What a run left at `offset`, at most `limit` bytes of it: to be checked."""

    def read(self, offset: int, size: int) -> bytes:
        """Copy [offset, offset + size), which must be in the ring."""
