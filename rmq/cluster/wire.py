"""The bytes between a master and its replica.

Report, from the replica: i64, the end of its log. A replica sends nothing else.
Frame, from the master: i64 offset, i32 size, then `size` bytes of the log from that
offset on. Size 0 is a heartbeat with the offset of the next byte. A frame may begin and
end anywhere inside a record, but not in two files.

In a group with a controller both sides use a second protocol, in which every frame has
the epoch of its bytes. All integers are big-endian and signed.

* Handshake, from the replica, once or more: i32 1, i16 wants the newest file, i16 is a
  learner, i64 broker id. Answer: i32 1, i32 size of the bytes after the next two
  fields, i64 end of the log, i32 last epoch.  Then follow i32 epoch and i64 start of
  each epoch, ascending.
* Report: i32 2, i64 offset.
* Part: i32 2, i32 size, i64 offset, i32 epoch, i64 start of that epoch, i64 confirmed
  offset, and the bytes, all of one epoch.

Known in Java as `AutoSwitchHAConnection` and `AutoSwitchHAClient`.
No I/O: callers feed bytes in, in any pieces.
"""

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from rmq.core.errors import RemoteProtocolError
from rmq.core.offsets import PhysicalOffset

FRAME_LIMIT = 16 << 20
"""Maximum size of a frame. A Java replica has room for 4 MiB."""

HEAD_SIZE = 12

NEWEST_FILE = 0
"""Report of an empty log that asks for the log from the newest file on."""

WHOLE_LOG = 1
"""Report of an empty log that asks for the whole log except its first byte, which is
known.
"""

FIRST_BYTE = b"\0"
"""The first byte of every log: the high byte of the size of a record."""

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")


def encode_report(offset: PhysicalOffset) -> bytes:
    """Return the bytes of a report."""
    return _REPORT.pack(offset)


def encode_head(offset: PhysicalOffset, size: int) -> bytes:
    """Return the head of a frame."""
    return _HEAD.pack(offset, size)


class ReportReader:
    """Decodes the reports that a master receives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the reports that are complete now; RemoteProtocolError if one is
        negative.
        """
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        reports = [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]
        if any(offset < 0 for offset in reports):
            raise RemoteProtocolError(f"the slave reported the offset {min(reports)}")
        return reports


class FrameReader:
    """Decodes the frames that a slave receives."""

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """Return the pieces of frames in `data`, with their offsets.

        A heartbeat is an empty piece.  RemoteProtocolError for an impossible size.
        """
        pieces = []
        at = 0
        while at < len(data):
            if not self._left:
                wanted = HEAD_SIZE - len(self._head)
                self._head += data[at : at + wanted]
                at += wanted
                if len(self._head) < HEAD_SIZE:
                    break
                self._begin()
                if not self._left:
                    pieces.append((self._offset, data[:0]))
                continue
            piece = data[at : at + self._left]
            pieces.append((self._offset, piece))
            at += len(piece)
            self._offset += len(piece)
            self._left -= len(piece)
        return pieces

    def _begin(self) -> None:
        self._offset, self._left = _HEAD.unpack(self._head)
        self._head = b""
        if not 0 <= self._left <= FRAME_LIMIT or self._offset < 0:
            raise RemoteProtocolError(
                f"a frame of {self._left} bytes at offset {self._offset}"
            )


# -- the second protocol: in a group with a controller


class Epoch(NamedTuple):
    """The number of an epoch, and the start of its part of the log."""

    number: int
    start: PhysicalOffset


class Handshake(NamedTuple):
    """The first message of a slave."""

    broker_id: int
    wants_newest_file: bool = False
    """Whether a slave with an empty log wants only the newest file."""

    is_learner: bool = False
    """Whether the slave is a learner; no sender waits for a learner."""


class Lineage(NamedTuple):
    """The answer of a master: the end of its log, and its epochs."""

    end: PhysicalOffset
    epochs: tuple[Epoch, ...]


class Part(NamedTuple):
    """Bytes of the log, or a heartbeat, as a master with epochs sends them."""

    offset: PhysicalOffset
    data: memoryview
    epoch: Epoch
    confirmed: PhysicalOffset
    """End of the bytes that every broker in the master's set has."""


LINK_HANDSHAKE = 1
LINK_COPIES = 2
"""The state of a link that rmq sends; Java has more states."""

MAX_EPOCHS = 1000
"""Maximum number of epochs in an answer; a Java master has room for no more."""

_HANDSHAKE = struct.Struct(">ihhq")
_LINEAGE = struct.Struct(">iiqi")
_EPOCH = struct.Struct(">iq")
_STATE = struct.Struct(">i")
_ACK = struct.Struct(">iq")
_PART = struct.Struct(">iiqiqq")
PART_HEAD_SIZE = _PART.size


def encode_handshake(handshake: Handshake) -> bytes:
    """Return the bytes of a handshake."""
    newest, learner = int(handshake.wants_newest_file), int(handshake.is_learner)
    return _HANDSHAKE.pack(LINK_HANDSHAKE, newest, learner, handshake.broker_id)


def encode_lineage(lineage: Lineage) -> bytes:
    """Return the bytes of a master's answer, with the newest epochs."""
    epochs = lineage.epochs[-MAX_EPOCHS:]
    last = epochs[-1].number if epochs else -1
    size = len(epochs) * _EPOCH.size
    head = _LINEAGE.pack(LINK_HANDSHAKE, size, lineage.end, last)
    return head + b"".join(_EPOCH.pack(*epoch) for epoch in epochs)


def encode_ack(offset: PhysicalOffset) -> bytes:
    """Return the bytes of a report."""
    return _ACK.pack(LINK_COPIES, offset)


def encode_part_head(
    offset: PhysicalOffset, size: int, epoch: Epoch, confirmed: PhysicalOffset
) -> bytes:
    """Return the head of a part."""
    return _PART.pack(LINK_COPIES, size, offset, *epoch, confirmed)


class AckReader:
    """Decodes handshakes and reports that a master with epochs receives."""

    def __init__(self) -> None:
        self.handshake: Handshake | None = None
        self._rest = b""

    def feed(self, data: bytes) -> list[int | Handshake]:
        """Return the complete frames; RemoteProtocolError if the bytes are invalid."""
        self._rest += data
        found: list[int | Handshake] = []
        while len(self._rest) >= _ACK.size:
            [state] = _STATE.unpack_from(self._rest)
            if state == LINK_HANDSHAKE:
                if len(self._rest) < _HANDSHAKE.size:
                    break
                found.append(self._decode_handshake())
            elif state == LINK_COPIES and self.handshake is not None:
                _, offset = _ACK.unpack_from(self._rest)
                self._rest = self._rest[_ACK.size :]
                if offset < 0:
                    raise RemoteProtocolError(f"the slave reported the offset {offset}")
                found.append(offset)
            else:
                raise RemoteProtocolError(
                    f"the slave sent the state {state}: enableControllerMode must be "
                    "equal on all brokers of a group"
                )
        return found

    def _decode_handshake(self) -> Handshake:
        _, newest, learner, broker_id = _HANDSHAKE.unpack_from(self._rest)
        self._rest = self._rest[_HANDSHAKE.size :]
        handshake = Handshake(broker_id, newest == 1, learner == 1)
        if broker_id < 1 or self.handshake not in (None, handshake):
            raise RemoteProtocolError(f"the slave reports the id {broker_id}")
        self.handshake = handshake
        return handshake


class LineageReader:
    """Decodes the answer to a handshake."""

    def __init__(self) -> None:
        self.lineage = Lineage(PhysicalOffset(0), ())
        """The answer, after `feed` has returned it."""

        self.rest = b""
        """Bytes after the answer."""

    def feed(self, data: bytes) -> Lineage | None:
        """Return the answer when it is complete; RemoteProtocolError if it is wrong."""
        self.rest += data
        if len(self.rest) < _LINEAGE.size:
            return None
        state, size, end, last = _LINEAGE.unpack_from(self.rest)
        whole = _LINEAGE.size + size
        if (
            state != LINK_HANDSHAKE
            or end < 0
            or size % _EPOCH.size
            or not 0 <= size <= MAX_EPOCHS * _EPOCH.size
        ):
            raise RemoteProtocolError(
                f"an answer of {size} bytes in the state {state}, with the end {end}"
            )
        if len(self.rest) < whole:
            return None
        table = self.rest[_LINEAGE.size : whole]
        epochs = tuple(Epoch(*each) for each in _EPOCH.iter_unpack(table))
        check_order(epochs)
        if epochs and epochs[-1].number != last:
            raise RemoteProtocolError(
                f"the answer has two last epochs, {last} and {epochs[-1]}"
            )
        self.rest = self.rest[whole:]
        self.lineage = Lineage(end, epochs)
        return self.lineage


def check_order(epochs: Sequence[Epoch]) -> None:
    """RemoteProtocolError unless both numbers and starts grow."""
    for one, other in pairwise(epochs):
        if one.number >= other.number or one.start >= other.start:
            raise RemoteProtocolError(
                f"the epochs are out of order: {one}, then {other}"
            )
    if epochs and (epochs[0].number < 0 or epochs[0].start < 0):
        raise RemoteProtocolError(f"the epoch {epochs[0]}")


class PartReader:
    """Decodes the frames of a master with epochs, after its answer."""

    def __init__(self) -> None:
        self._head = b""
        self._offset = self._left = self._confirmed = 0
        self._epoch = Epoch(0, PhysicalOffset(0))

    def feed(self, data: memoryview) -> list[Part]:
        """Return the pieces of parts in `data`; a heartbeat has no bytes.

        RemoteProtocolError for an impossible head.
        """
        parts = []
        at = 0
        while at < len(data):
            if self._left:
                piece = data[at : at + self._left]
                parts.append(
                    Part(
                        PhysicalOffset(self._offset),
                        piece,
                        self._epoch,
                        PhysicalOffset(self._confirmed),
                    )
                )
                at += len(piece)
                self._offset += len(piece)
                self._left -= len(piece)
                continue
            wanted = PART_HEAD_SIZE - len(self._head)
            self._head += data[at : at + wanted]
            at += wanted
            if len(self._head) < PART_HEAD_SIZE:
                break
            self._begin()
            if not self._left:
                parts.append(
                    Part(
                        PhysicalOffset(self._offset),
                        data[:0],
                        self._epoch,
                        PhysicalOffset(self._confirmed),
                    )
                )
        return parts

    def _begin(self) -> None:
        state, self._left, self._offset, *epoch, self._confirmed = _PART.unpack(
            self._head
        )
        self._head = b""
        self._epoch = Epoch(*epoch)
        is_heartbeat = self._left == 0
        if (
            state not in (LINK_HANDSHAKE, LINK_COPIES)
            or not 0 <= self._left <= FRAME_LIMIT
            or (not is_heartbeat and (self._offset < 0 or min(epoch) < 0))
        ):
            raise RemoteProtocolError(
                f"a part of {self._left} bytes at offset {self._offset}, of epoch "
                f"{epoch[0]}, in the state {state}"
            )
