"""Checkpoint: the ends up to which log, queues and index are known to be durable.

Layout (4,096 bytes, big-endian i64): physic_msg_ms @0, logics_msg_ms @8, index_msg_ms
@16, master_flushed_offset @24, confirm_offset @32, logics_physical_offset @40, zeros.
Invariant: each field is at most the position that fdatasync has confirmed.
Crash contract: the old or the new fields, see `rmq/core/files.py`. A file of another
program, or of an older broker on a full disk, may be too short. Such a file is ignored,
and the log is read from its start. One flush thread at a time writes the file, and a
start reads it.
"""

import struct
from collections.abc import Callable
from pathlib import Path

import msgspec

from rmq.core.files import replace_file

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
    before_save: Callable[[bytes], object] | None = None
    """Function that gets the new bytes of the file before they are written."""

    @classmethod
    def load(cls, path: Path, notes: list[str] | None = None) -> "Checkpoint":
        """Read the file; all fields are 0 if it is absent or too short.

        A file that is too short adds a line to `notes`.
        """
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls()
        if len(data) < _FIELDS.size:
            if notes is not None:
                notes.append(
                    f"{path} has {len(data)} bytes instead of {CHECKPOINT_SIZE} and is "
                    "ignored: after a crash recovery must then check more of the log"
                )
            return cls()
        return cls(*_FIELDS.unpack_from(data))

    @property
    def flushed_offset(self) -> int | None:
        """Offset up to which the log is flushed at least; None in a file of an older
        broker.
        """
        has_offset = self.logics_physical_offset or not self.physic_msg_ms
        return self.logics_physical_offset if has_offset else None

    def save(self, path: Path) -> None:
        """Replace the file; it is durable at the return."""
        assert self.physic_msg_ms >= 0, self
        assert self.logics_physical_offset >= 0, self
        *values, before_save = msgspec.structs.astuple(self)
        data = _FIELDS.pack(*values).ljust(CHECKPOINT_SIZE, b"\0")
        if before_save is not None:
            before_save(data)
        replace_file(path, data)
