"""TimerCheckpoint: the progress of the timer, and its durable part.

File `config/timercheck`, 4,096 bytes, big-endian i64:
read_ms @0 · log_flushed @8 · queue_offset @16 · master_queue_offset @24 ·
state_version @32 · changed_ms @40 · counter @48 · returns @56, 16 bytes each · zeros

All slots before `read_ms` are delivered.  If the clock was set back, `read_ms` went
back, too.  A *return* has the offset of the log and the `read_ms` of that moment.
Records before this offset with a slot before this time are delivered as well.
All records of the queue before `queue_offset` are in the timer log or delivered.
Invariant: deliveries before `read_ms` and units before `queue_offset` are durable.
`log_flushed` is 0 while a broker runs: a Java broker that takes over after a crash then
builds its wheel from the whole timer log.
Crash contract: the old or the new fields, see `rmq/core/files.py`.
"""

import struct
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple, Self

import msgspec

from rmq.core.files import replace_file
from rmq.core.offsets import PhysicalOffset

CHECKPOINT_SIZE: Final = 4096
_FIELDS: Final = struct.Struct(">7q")
_RETURN: Final = struct.Struct(">2q")
MAX_RETURNS: Final = 64
"""Maximum number of returns.

After more returns, messages of the first one may be delivered again after a crash.
"""


class ClockReturn(NamedTuple):
    """The end of the log, and the slots that were delivered, when the clock was set
    back.
    """

    log_end: int
    read_ms: int

    def is_delivered(self, offset: PhysicalOffset, slot_ms: int) -> bool:
        """Whether the record at an offset, due in a slot, is delivered."""
        return offset < self.log_end and slot_ms < self.read_ms


def add_return(
    returns: Iterable[ClockReturn], added: ClockReturn
) -> tuple[ClockReturn, ...]:
    """Return the newest MAX_RETURNS: `added`, and others that cover more records or
    later slots.
    """
    rest = [
        each
        for each in returns
        if each.read_ms > added.read_ms or each.log_end > added.log_end
    ]
    return (*rest, added)[-MAX_RETURNS:]


class TimerCheckpoint(msgspec.Struct):
    """Known in Java by the same name."""

    read_ms: int = 0
    log_flushed: int = 0
    queue_offset: int = 0
    master_queue_offset: int = 0
    state_version: int = 0
    changed_ms: int = 0
    counter: int = 0
    returns: tuple[ClockReturn, ...] = ()

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
        size = min(len(data) - _FIELDS.size, MAX_RETURNS * _RETURN.size)
        rest = data[_FIELDS.size :][: size - size % _RETURN.size]
        found = map(ClockReturn._make, _RETURN.iter_unpack(rest))
        returns = tuple(each for each in found if each.log_end > 0)
        check = cls(*_FIELDS.unpack_from(data))
        check.returns = returns
        return check

    def encode(self) -> bytes:
        """Return the used bytes: 56 bytes, and the returns."""
        *fields, returns = msgspec.structs.astuple(self)
        return _FIELDS.pack(*fields) + b"".join(_RETURN.pack(*each) for each in returns)

    def save(self, path: Path) -> None:
        """Replace the file; it is durable at the return."""
        assert self.queue_offset >= 0, self
        replace_file(path, self.encode().ljust(CHECKPOINT_SIZE, b"\0"))
