"""ClaimFile: the file `claim`, which distinguishes a torn end from damage at a start.

Layout: one page, see `_fastpath/log/claim.pyx`.  Java ignores the file.
Each append stores the end of the log in the page before its answers leave, so the page
is exact after a kill. A worker writes the page to the disk once a second, and before
each checkpoint. After a power cut only the field *durable* is valid; its value may be a
second old. A log that ends before the claim has lost records, so recovery truncates
nothing (`recovery.py`). The claim is valid only if it names the checkpoint of the
store. If it names another checkpoint, another program has used the store. Crash
contract: a claim is never ahead of the log; the file is absent, or has the old or the
new claim.
"""

import hashlib
import mmap
import os
import zlib
from pathlib import Path
from typing import Final

from rmq._fastpath.log.claim import Claim
from rmq.core.files import replace_file

CLAIM_SIZE: Final = 4096
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


def read_boot_id(source: Path = BOOT_ID) -> bytes:
    """Return 16 bytes that differ after each start of the machine."""
    return hashlib.blake2b(source.read_bytes(), digest_size=16).digest()


class ClaimFile:
    """The claim of one store; opened with its log."""

    def __init__(self, root: Path) -> None:
        self._path = root / "claim"
        self._map: mmap.mmap | None = None
        self._claim: Claim | None = None
        self._has_file = False

    def open(self) -> Claim:
        """Map the file, and create it if it does not exist.

        On a full disk the claim of this run may have no file.
        """
        if not self._path.exists() or self._path.stat().st_size != CLAIM_SIZE:
            try:
                replace_file(self._path, bytes(CLAIM_SIZE))
            except OSError:
                self._claim = Claim(mmap.mmap(-1, CLAIM_SIZE), read_boot_id())
                return self._claim
        self._has_file = True
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            page = mmap.mmap(descriptor, CLAIM_SIZE)
        finally:
            os.close(descriptor)
        self._claim = Claim(page, read_boot_id())
        return self._claim

    def flush(self) -> None:
        """Write the page to the disk; it blocks."""
        if not self._has_file:
            return
        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)

    def save_checkpoint(self, data: bytes) -> None:
        """Store the name of the next checkpoint before its write; durable at the
        return.
        """
        assert self._claim is not None, "the claim is open"
        self._claim.add_checkpoint(zlib.crc32(data))
        self.flush()

    def promised_end(self, checkpoint: Path) -> int:
        """Return the offset up to which the log was complete; 0 if this is not
        known.
        """
        claim = self._claim
        assert claim is not None, "the claim is open"
        if not claim.store_number or _crc_of(checkpoint) not in claim.checkpoint_crcs:
            return 0
        return claim.written_offset if claim.is_same_boot else claim.durable_offset

    def name_checkpoint(self, checkpoint: Path) -> None:
        """Store the name of the current checkpoint, after a check of the log."""
        assert self._claim is not None, "the claim is open"
        crc = _crc_of(checkpoint)
        if crc not in self._claim.checkpoint_crcs:
            self._claim.add_checkpoint(crc)


def _crc_of(path: Path) -> int:
    try:
        return zlib.crc32(path.read_bytes())
    except FileNotFoundError:
        return 0
