from typing import NamedTuple, Self, final

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

class DispatchResult(NamedTuple):
    """Result of `QueueDispatcher.run`.

    `first_offset` is that of the first record that got an entry, or -1.
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
        """List touched queues in `log`, if there are readers already.

        Python dispatches records with `mark` in their properties.
        """

    def add(self, queue: QueueTail) -> None:
        """Dispatch to this queue from now on."""

    def skip(self, topic: bytes, before: int) -> None:
        """Pass over the records of a topic that are before an offset."""

    def run(
        self, file: MappedFile, position: int, end: int, *, check_crc: bool = True
    ) -> DispatchResult:
        """Check and dispatch records in [position, end); see `DispatchResult`.

        The status is OK if it stopped before a record for Python, or at a limit.
        Otherwise it is the reason why there is no valid record at the position.
        """
