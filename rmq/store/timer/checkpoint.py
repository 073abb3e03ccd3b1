"""TimerCheckpoint: how far the timer is, and what of it is durable.

File `config/timercheck`, 4,096 bytes, big-endian i64:
read_ms @0 · log_flushed @8 · queue_offset @16 · master_queue_offset @24 ·
state_version @32 · changed_ms @40 · counter @48 · zeros

All slots before `read_ms` are delivered.  All records of the queue before
`queue_offset` are in the timer log or delivered.
Invariant: deliveries before `read_ms` and units before `queue_offset` are durable.
`log_flushed` is 0 while a broker runs: a Java broker that takes over after a crash then
builds its wheel from the whole timer log.
Crash contract: the old or the new fields, see `rmq/core/files.py`.
"""

import struct
from pathlib import Path
from typing import Final, Self

import msgspec

from rmq.core.files import replace_file

CHECKPOINT_SIZE: Final = 4096
_FIELDS: Final = struct.Struct(">7q")


class TimerCheckpoint(msgspec.Struct):
    """Known in Java by the same name."""

    read_ms: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0

    @classmethod
    def load(cls, path: Path) -> Self | None:
        """Read the file; None if it is absent or too short."""
        try:
            return cls.decode(path.read_bytes())
        except FileNotFoundError:
            return None

    @classmethod
    def decode(cls, data: bytes) -> Self | None:
        """Read the fields; None if some are missing."""
        if len(data) < _FIELDS.size:
            return None
        return cls(*_FIELDS.unpack_from(data))

    def encode(self) -> bytes:
        """Return the 56 bytes with a meaning."""
        return _FIELDS.pack(*msgspec.structs.astuple(self))

    def save(self, path: Path) -> None:
        """Replace the file; it is durable at the return."""
        assert self.queue_offset >= 0, self
        replace_file(path, self.encode().ljust(CHECKPOINT_SIZE, b"\0"))
