"""Checkpoint: up to where log, queues and index are known to be durable.

Layout (4,096 bytes, big-endian i64): physic_msg_ms @0, logics_msg_ms @8, index_msg_ms
@16, master_flushed_offset @24, confirm_offset @32, logics_physical_offset @40, zeros.
Invariant: no field is ahead of what fdatasync has confirmed.
Crash contract: any mix of old and new fields is safe, each is a lower bound by itself.
Written by one flush thread at a time, read at start.
"""

import os
import struct
from pathlib import Path

import msgspec

from rmq.errors import CorruptLog

CHECKPOINT_SIZE = 4096
_FIELDS = struct.Struct(">6q")


class Checkpoint(msgspec.Struct):
    """Known in Java as `StoreCheckpoint`."""

    physic_msg_ms: int = 0
    logics_msg_ms: int = 0
    index_msg_ms: int = 0
    master_flushed_offset: int = 0
    confirm_offset: int = 0
    logics_physical_offset: int = 0

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """Read the file; one that is not there is all zeros."""
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < _FIELDS.size:
            raise CorruptLog(
                str(path),
                0,
                f"a checkpoint has {CHECKPOINT_SIZE} bytes, not {len(data)}; move it "
                "away to recover from the first file",
            )
        return cls(*_FIELDS.unpack_from(data))

    def save(self, path: Path) -> None:
        """Write the fields in place and wait for the disk."""
        assert self.physic_msg_ms >= 0, self
        assert self.logics_physical_offset >= 0, self
        values = msgspec.structs.astuple(self)
        data = _FIELDS.pack(*values).ljust(CHECKPOINT_SIZE, b"\0")
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            os.pwrite(descriptor, data, 0)
            os.fdatasync(descriptor)
        finally:
            os.close(descriptor)
