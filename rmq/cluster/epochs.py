"""Epochs: which master wrote which part of the log, in memory and in a file.

An epoch starts where the log ended when its broker became the master. Two logs that
share an epoch (number and start) are equal up to the smaller of the epoch's two ends.
So the two lists give the divergence point (`consistent_point`). There is one exception:
a master has lost the end of an epoch in a power cut, and has continued the epoch. Then
only a comparison of bytes finds the divergence.
Invariant: numbers and starts grow. An epoch without bytes is replaced by the next one,
which starts at the same offset. So every pair of number and start names one master, and
the last epoch names the last writer. Java does not record an epoch in place of an empty
one; its logs may share a pair and differ.

File `epochFileCheckpoint`, text: the number of epochs; a checksum; one line
`epoch-start` for each epoch.  The checksum is the CRC-32 of these lines, in decimal,
without its highest bit; 0 means unchecked.  Backup: `epochFileCheckpoint.bak`.
Crash contract: an epoch is durable before its first byte is in the log.  A start drops
epochs that begin after the end of the log.
Known in Java as `EpochFileCache`, `CheckpointFile`.
"""

import logging
import re
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path

from rmq.cluster.wire import MAX_EPOCHS, Epoch, check_order
from rmq.core.errors import RemoteProtocolError
from rmq.core.files import replace_file
from rmq.core.offsets import PhysicalOffset

logger = logging.getLogger(__name__)

CRC_MASK = 0x7FFF_FFFF
_LINE = re.compile(r"(\d{1,10})-(\d{1,19})")


class Epochs:
    """The epochs of one log."""

    def __init__(self, epochs: Iterable[Epoch] = ()) -> None:
        self._epochs = list(epochs)
        check_order(self._epochs)

    def all_epochs(self) -> tuple[Epoch, ...]:
        """Return all epochs, the oldest first."""
        return tuple(self._epochs)

    @property
    def last_number(self) -> int:
        """Number of the last epoch; 0 without one."""
        return self._epochs[-1].number if self._epochs else 0

    def begin(self, epoch: Epoch) -> bool:
        """Add an epoch; False if it is the last one already.

        RemoteProtocolError if the epoch is older than the last one, or begins before
        it.
        """
        if self._epochs and self._epochs[-1] == epoch:
            return False
        kept = list(self._epochs)
        if kept and kept[-1].start == epoch.start:
            kept.pop()
        kept.append(epoch)
        if self._epochs and self._epochs[-1].number >= epoch.number:
            raise RemoteProtocolError(f"epoch {epoch} comes after {self._epochs[-1]}")
        check_order(kept)
        self._epochs = kept[-MAX_EPOCHS:]
        return True

    def drop_after(self, end: PhysicalOffset) -> bool:
        """Drop epochs without bytes in a log that ends at `end`; False if there was
        none.
        """
        kept = [epoch for epoch in self._epochs if epoch.start < end]
        is_changed = len(kept) < len(self._epochs)
        self._epochs = kept
        return is_changed

    def epoch_at(self, offset: PhysicalOffset) -> tuple[Epoch, int | None] | None:
        """Return the epoch of the byte at `offset`, and the end of this epoch.

        The last epoch has no end.  None for an offset before the first epoch.
        """
        following: int | None = None
        for epoch in reversed(self._epochs):
            if epoch.start <= offset:
                return epoch, following
            following = epoch.start
        return None

    def consistent_point(
        self, end: PhysicalOffset, others: Sequence[Epoch], other_end: PhysicalOffset
    ) -> PhysicalOffset | None:
        """Return the offset up to which this log and another log are equal by their
        epochs.

        The logs end at `end` and `other_end`.  None if no epoch is in both.
        """
        their_ends = dict(zip(others, _epoch_ends(others, other_end), strict=True))
        own = list(zip(self._epochs, _epoch_ends(self._epochs, end), strict=True))
        for epoch, own_end in reversed(own):
            if epoch in their_ends:
                return min(own_end, their_ends[epoch])
        return None


def _epoch_ends(epochs: Sequence[Epoch], end: PhysicalOffset) -> list[PhysicalOffset]:
    """Return the offset of the end of each epoch."""
    return [epoch.start for epoch in epochs[1:]] + [end] * bool(epochs)


class EpochFile(Epochs):
    """Epochs that are in a file; each change is durable at the return."""

    def __init__(self, path: Path) -> None:
        self._path = path
        super().__init__(self._load())

    def begin(self, epoch: Epoch) -> bool:
        """Add an epoch, see `Epochs.begin`."""
        is_new = super().begin(epoch)
        if is_new:
            self._save()
        return is_new

    def drop_after(self, end: PhysicalOffset) -> bool:
        """Drop epochs without bytes, see `Epochs.drop_after`."""
        is_changed = super().drop_after(end)
        if is_changed:
            self._save()
        return is_changed

    def _load(self) -> list[Epoch]:
        for path in (self._path, self._path.with_name(self._path.name + ".bak")):
            try:
                found = decode_epochs(path.read_bytes())
            except FileNotFoundError:
                continue
            except RemoteProtocolError as error:
                logger.error("%s: %s", path, error)
                continue
            return found
        return []

    def _save(self) -> None:
        replace_file(self._path, encode_epochs(self.all_epochs()), backup=True)


def encode_epochs(epochs: Sequence[Epoch]) -> bytes:
    """Return the text of a file."""
    lines = "".join(f"{epoch.number}-{epoch.start}\n" for epoch in epochs).encode()
    checksum = zlib.crc32(lines) & CRC_MASK
    return b"%d\n%d\n" % (len(epochs), checksum) + lines


def decode_epochs(data: bytes) -> list[Epoch]:
    """Read the text of a file; RemoteProtocolError if it is damaged."""
    count, _, rest = data.partition(b"\n")
    checksum, _, lines = rest.partition(b"\n")
    if not count.strip().isdigit() or not checksum.strip().isdigit():
        raise RemoteProtocolError("it has no count and checksum of epochs")
    if int(checksum) and int(checksum) != zlib.crc32(lines) & CRC_MASK:
        raise RemoteProtocolError("its checksum is wrong")
    texts = lines.decode("ascii", "replace").split()
    found = [_LINE.fullmatch(text) for text in texts]
    if len(found) != int(count) or None in found:
        raise RemoteProtocolError(f"it has {len(found)} epochs instead of {int(count)}")
    epochs = [
        Epoch(int(each[1]), PhysicalOffset(int(each[2]))) for each in found if each
    ]
    check_order(epochs)
    return epochs
