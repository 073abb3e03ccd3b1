"""Segments: files named by the offset of their first byte, as 20 digits.

The log and every queue are such files; each file begins at the end of the previous one.
A folder is listed while a broker adds files to it and removes the oldest. POSIX does
not define whether a listing contains a file that was created meanwhile. So a file can
be missing from the listing although a later one is in it.
"""

import os
import stat
from pathlib import Path
from typing import Final, NamedTuple

NAME_DIGITS: Final = 20


class Segment(NamedTuple):
    """One file; `base_offset` and `size` in bytes."""

    path: str
    base_offset: int
    size: int

    @property
    def end_offset(self) -> int:
        """Offset at which the next segment starts."""
        return self.base_offset + self.size


def is_name(name: str) -> bool:
    """Return whether a file of this name is a segment."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdecimal()


def segments_of(folder: str | Path) -> list[Segment]:
    """Return the segments of a folder, oldest first; OSError if it cannot be listed.

    If the listing lacks a file between two others, this file is looked up by its name.
    Files without a byte are no segments: a broker creates a file and then sets its
    length.
    """
    found: list[Segment] = []
    for name in sorted(filter(is_name, os.listdir(folder))):
        base_offset = int(name)
        while found and found[-1].end_offset < base_offset:
            between = _stat_segment(folder, found[-1].end_offset)
            if between is None:
                break
            found.append(between)
        segment = _stat_segment(folder, base_offset)
        if segment is not None:
            found.append(segment)
    return found


def _stat_segment(folder: str | Path, base_offset: int) -> Segment | None:
    """Return a segment; None if it is not there, has no byte or is no file."""
    path = os.path.join(folder, f"{base_offset:0{NAME_DIGITS}d}")
    try:
        status = os.stat(path)
    except FileNotFoundError:
        return None
    if not status.st_size or not stat.S_ISREG(status.st_mode):
        return None
    return Segment(path, base_offset, status.st_size)
