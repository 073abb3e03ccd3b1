from typing import NamedTuple, Self, final

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

class DispatchResult(NamedTuple):
    """How far a call of `QueueDispatcher.run` came.

    `first_offset` is of the first record that got an entry, -1 without one.
    """

    status: RecordStatus
    position: int
    records: int
    entries: int
    first_offset: int
    store_ms: int
    is_stopped: bool

@final
class QueueDispatcher:
    """The known queues, by the names of their topics."""

    def __new__(cls, log: LogTail | None = None, mark: bytes = b"") -> Self:
        """List queues as touched in `log`, if there are readers already.

        Records with `mark` in their properties are left to Python.
        """

    def add(self, queue: QueueTail) -> None:
        """Dispatch to this queue from now on."""

    def skip(self, topic: bytes, before: int) -> None:
        """Pass over the records of a topic that are before an offset."""

    def run(
        self, file: MappedFile, position: int, end: int, *, check_crc: bool = True
    ) -> DispatchResult:
        """Check and dispatch records in [position, end); see `DispatchResult`.

        The status is OK if it stopped before a record that is left to Python, or after
        some records, else why there is no record at the position.
        """
