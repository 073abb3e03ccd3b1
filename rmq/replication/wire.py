"""The bytes between a master and its replica.

Report, from the replica: i64, the end of its log.  Nothing else is ever sent there.
Frame, from the master: i64 offset, i32 size, then `size` bytes of the log from there
on; size 0 is a heartbeat, its offset what would come next.  A frame may begin and end
anywhere inside a record, but not in two files.

No I/O: whoever has bytes feeds them in, in any pieces.
"""

import struct

from rmq.errors import RemoteProtocolError

FRAME_LIMIT = 16 << 20
"""A Java replica has room for 4 MiB; more than this is no frame."""

HEAD_SIZE = 12

NEWEST_FILE = 0
"""A report of an empty log: send from the start of the newest file."""

WHOLE_LOG = 1
"""A report of an empty log: send all, except for the first byte, which is known."""

FIRST_BYTE = b"\0"
"""Of every log: the high byte of the size of a record."""

_REPORT = struct.Struct(">q")
_HEAD = struct.Struct(">qi")


def encode_report(offset: int) -> bytes:
    """Return the bytes of a report."""
    return _REPORT.pack(offset)


def encode_head(offset: int, size: int) -> bytes:
    """Return what comes before the bytes of a frame."""
    return _HEAD.pack(offset, size)


class ReportReader:
    """What a master receives."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> list[int]:
        """Return the reports that are complete now; RemoteProtocolError if negative."""
        data = self._rest + data
        whole = len(data) - len(data) % _REPORT.size
        self._rest = data[whole:]
        reports = [offset for (offset,) in _REPORT.iter_unpack(data[:whole])]
        if any(offset < 0 for offset in reports):
            raise RemoteProtocolError(f"it reported the offset {min(reports)}")
        return reports


class FrameReader:
    """What a replica receives."""

    def __init__(self) -> None:
        self._head = b""
        self._offset = 0
        self._left = 0

    def feed(self, data: memoryview) -> list[tuple[int, memoryview]]:
        """Return the pieces of frames in `data`, with their offsets.

        A heartbeat is an empty piece.  RemoteProtocolError for a size that cannot be.
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
