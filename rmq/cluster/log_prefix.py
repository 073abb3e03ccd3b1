"""Overlap: the proof that a slave's log is the beginning of its master's log.

A slave does not begin with the end of its log. It reports the start of its last record,
so the master sends this record again. A record has its own offset, its queue offset,
its store time and a checksum. The slave has checked all records before its last
record. So if the last record is in both logs at the same offset, all records before it
are equal. Before that proof the slave appends and acknowledges no bytes.

No I/O: feed the bytes that the master sends.
"""

from rmq.cluster.wire import FIRST_BYTE, WHOLE_LOG
from rmq.core.errors import Diverged
from rmq.core.offsets import PhysicalOffset


class Overlap:
    """The bytes that the master has to send again before new bytes."""

    def __init__(
        self,
        tail: tuple[int, bytes] | None,
        oldest: int = 0,
        *,
        names_first_byte: bool = False,
    ) -> None:
        """`tail`: offset and bytes of the last record up to the end of this log.

        Without `tail` the log is empty, and begins with `oldest`, the start of the
        master's log. `names_first_byte`: a report of 0 asks for the whole log.
        """
        self._offset, self._left = (oldest, b"") if tail is None else tail
        self._first_byte = b""
        if self._offset == 0 and not names_first_byte:
            # a report of 0 would ask for the newest file only
            self._first_byte, self._left = FIRST_BYTE, self._left[1:]
            self._offset = WHOLE_LOG
            if tail is not None:
                self._first_byte = b""

    @property
    def report(self) -> int:
        """The offset of the first report: the master begins there."""
        return self._offset

    @property
    def is_proven(self) -> bool:
        """Whether the master has sent all bytes of the overlap."""
        return not self._left

    def skip_equal(
        self, offset: PhysicalOffset, data: memoryview
    ) -> tuple[int, bytes | memoryview]:
        """Compare a piece with the overlap; return its new bytes, and their offset.

        Diverged at the first byte that differs.
        """
        if self._first_byte and data:
            if offset != WHOLE_LOG:
                raise Diverged(
                    offset, "the master's log begins there instead of at offset 1"
                )
            first, self._first_byte = self._first_byte, b""
            return 0, first + data
        if not self._left:
            return offset, data
        if offset != self._offset:
            raise Diverged(
                offset,
                f"the master's log begins there instead of at offset {self._offset}",
            )
        size = min(len(data), len(self._left))
        if data[:size] != self._left[:size]:
            raise Diverged(
                offset,
                "the master has another record at the offset of this log's last record",
            )
        self._left = self._left[size:]
        self._offset += size
        return self._offset, data[size:]
