from typing import Self, final

from typing_extensions import Buffer

from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.watermark import Watermark

@final
class MappedFile(Extent):
    """One mapped file; positions are bytes from its start."""

    fd: int
    allocated: int
    flushed_position: int
    writable: bool
    write_position: int
    def __new__(
        cls,
        path: str,
        size: int,
        *,
        base_offset: int = 0,
        create: bool = False,
        writable: bool = True,
    ) -> Self: ...
    @property
    def is_closed(self) -> bool:
        """True after `close`."""

    def allocate(self, end: int) -> None:
        """Allocate the blocks of [0, end); OSError (ENOSPC) if the disk is full."""

    def assume_allocated(self, end: int) -> None:
        """Assume that [0, end) has blocks, as in a file from an earlier run."""

    def expect_writes(self, *, writing: bool) -> None:
        """Advise the kernel if the next accesses are first writes to pages.

        Without it a first write to a page reads ahead: 2 ms, not 10 us, with a
        read-ahead of 8 MiB.
        """

    def append(self, data: Buffer) -> int:
        """Copy `data` to write_position and return the new position."""

    def write(self, position: int, data: Buffer) -> None:
        """Copy `data` to `position`, inside the allocated part."""

    def pwrite(self, position: int, data: Buffer) -> None:
        """Write `data` with a system call, which reports errors a mapping cannot."""

    def zero(self, start: int, end: int) -> None:
        """Fill [start, end) with zeros: bytes that recovery cut must not look like
        data.
        """

    def view(self, position: int, size: int) -> memoryview:
        """A read-only memoryview that keeps the mapping until it is released."""

    def flush(self, durable: Watermark | None = None, position: int = -1) -> int:
        """Call fdatasync without the GIL (116 us for 4 KiB); return the durable
        position.

        That is `position`, or the write position without one. `durable` advances to it
        at once, even while another thread has the GIL.
        """

    def begin_flush(self, start: int, end: int) -> None:
        """Start writing [start, end) to the disk, without the GIL and without a result.

        Only `flush` returns what is durable, and reports errors.
        """

    def assume_flushed(self, position: int) -> None:
        """Assume that [0, position) is durable: recovery has found it on the disk."""

    def is_resident(self, position: int, size: int) -> bool:
        """True if the whole range is in the page cache (1.2 us for 32 KiB)."""

    def load(self, position: int, size: int) -> None:
        """Read a range into the page cache, without the GIL (0.5 ms for 512 KiB)."""

    def acquire(self) -> None:
        """Keep the mapping until `release`."""

    def release(self) -> None:
        """Undo one `acquire`."""

    def close(self) -> None:
        """Unmap and close; BufferError while the file is held."""

    def unlink(self) -> None:
        """Remove the name; the mapping lives until it is closed."""
