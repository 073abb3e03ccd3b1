"""The page cache, for tests that must read from the disk."""

import os
import re
from collections.abc import Iterable
from pathlib import Path


def drop_pages(paths: Iterable[Path]) -> None:
    """Have the kernel forget what is in memory of these files."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def dirty_bytes(path: Path) -> int:
    """Bytes of a mapped file that wait for the disk, as this process wrote them."""
    areas = Path("/proc/self/smaps").read_text().split("VmFlags:")
    mine = "".join(area for area in areas if f" {path}\n" in area)
    return 1024 * sum(
        map(int, re.findall(r"(?:Shared|Private)_Dirty: +(\d+) kB", mine))
    )
