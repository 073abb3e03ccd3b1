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
        """Give [0, end) its blocks; OSError (ENOSPC) if there are none."""

    def assume_allocated(self, end: int) -> None:
        """Trust that [0, end) has blocks: a file that was written to before."""

    def expect_writes(self, *, writing: bool) -> None:
        """Tell the kernel whether new pages or old ones are touched next.

        A first write to a page of a fresh file otherwise reads ahead: 2 ms instead of
        10 us where the device's read-ahead is 8 MiB.
        """

    def append(self, data: Buffer) -> int:
        """Copy `data` to write_position and return the new one."""

    def write(self, position: int, data: Buffer) -> None:
        """Copy `data` to `position`, inside the allocated part."""

    def pwrite(self, position: int, data: Buffer) -> None:
        """Write `data` with a system call, which reports errors a mapping cannot."""

    def zero(self, start: int, end: int) -> None:
        """Make [start, end) zeros: what recovery cut must not look like data."""

    def view(self, position: int, size: int) -> memoryview:
        """A read-only memoryview that keeps the mapping until it is released."""

    def flush(self, durable: Watermark | None = None, position: int = -1) -> int:
        """Call fdatasync without the GIL (116 us for 4 KiB); the durable position.

        That is `position`, or else the write position.  `durable` is moved to it at
        once, also while another thread keeps the GIL.
        """

    def begin_flush(self, start: int, end: int) -> None:
        """Have the disk begin with [start, end), without the GIL or a promise.

        Only `flush` tells what is durable, and if it failed.
        """

    def assume_flushed(self, position: int) -> None:
        """Trust that [0, position) is durable: what recovery found on the disk."""

    def is_resident(self, position: int, size: int) -> bool:
        """True if the whole range is in the page cache (1.2 us for 32 KiB)."""

    def load(self, position: int, size: int) -> None:
        """Read a range into the page cache, without the GIL (0.5 ms for 512 KiB)."""

    def hold(self) -> None:
        """Keep the mapping until `release`."""

    def release(self) -> None:
        """Give back what `hold` took."""

    def close(self) -> None:
        """Unmap and close; BufferError while somebody holds the file."""

    def unlink(self) -> None:
        """Remove the name; the mapping lives until it is closed."""
