"""LogPatch: writes the bytes of another broker's log into a damaged range.

Before that, `keep` copies the first 16 MiB of the present bytes to `damaged/`, for an
operator. Missing files are created with their whole length. Crash contract: after a
kill, a part of the range may have the right bytes. The next start finds the rest. It
blocks: for a worker.
"""

import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from rmq.core.errors import DiskFull
from rmq.core.segments import NAME_DIGITS
from rmq.store.allocate import as_store_error
from rmq.store.damage import LogFiles

logger = logging.getLogger(__name__)

COPY_LIMIT: Final = 16 << 20
"""Bytes of one damaged range that are copied before they are replaced."""


class LogPatch:
    """Replaces the bytes of damaged ranges of one log."""

    def __init__(self, files: LogFiles, copies: Path) -> None:
        self._files = files
        self._copies = copies
        self._touched: set[Path] = set()
        self._made = False

    def keep(self, begin: int, end: int) -> None:
        """Copy the first present bytes of a range, if the disk has room for them.

        A copy of an earlier attempt stays as it is.
        """
        end = min(end, begin + COPY_LIMIT)
        target = self._copies / f"{begin:0{NAME_DIGITS}d}"
        if target.exists():
            return
        parts = []
        at = begin
        while at < end:
            base, size = self._find_part(at, end)
            # a disk that cannot read these bytes may take others
            with suppress(OSError), self._files.path_of(base).open("rb") as f:
                f.seek(at - base)
                parts.append(f.read(size))
            at += size
        data = b"".join(parts)
        if not data.strip(b"\0"):
            return
        try:
            self._copies.mkdir(exist_ok=True)
            target.write_bytes(data)
        except OSError as error:
            logger.warning("%s: no copy of damaged bytes: %s", target, error.strerror)

    def write(self, offset: int, data: memoryview) -> None:
        """Write bytes at an offset; StoreError if the disk does not take them."""
        while data:
            base, size = self._find_part(offset, offset + len(data))
            self._write_part(self._files.path_of(base), offset - base, data[:size])
            offset += size
            data = data[size:]

    def _find_part(self, begin: int, end: int) -> tuple[int, int]:
        """Return the file of an offset, and the number of bytes of the range in this
        file.
        """
        base = self._files.base_of(begin)
        return base, min(end, base + self._files.file_size) - begin

    def _write_part(self, path: Path, position: int, data: memoryview) -> None:
        try:
            is_new = not path.exists()
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            try:
                if os.fstat(descriptor).st_size != self._files.file_size:
                    os.ftruncate(descriptor, self._files.file_size)
                if os.pwrite(descriptor, data, position) != len(data):
                    raise DiskFull(f"{path} takes no more bytes")
            finally:
                os.close(descriptor)
        except OSError as error:
            raise as_store_error(error, path) from error
        self._made |= is_new
        self._touched.add(path)

    def sync(self) -> None:
        """Make everything durable."""
        for path in sorted(self._touched):
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            try:
                os.fdatasync(descriptor)
            finally:
                os.close(descriptor)
        if self._made:
            self._files.folders.sync()
        self._touched.clear()
