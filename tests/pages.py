"""The page cache, for tests that must read from the disk."""

import os
from collections.abc import Iterable
from pathlib import Path


def drop_pages(paths: Iterable[Path]) -> None:
    """Have the kernel forget what is in memory of these files."""
    for path in paths:
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
