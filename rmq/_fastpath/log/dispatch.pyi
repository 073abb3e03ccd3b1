from typing import NamedTuple, Self, final

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail

class DispatchResult(NamedTuple):
    status: RecordStatus
    position: int
    records: int
    entries: int
    first_offset: int
    store_ms: int
    is_stopped: bool

@final
class QueueDispatcher:
    def __new__(cls, log: LogTail | None = None, mark: bytes = b"") -> Self: ...
    def add(self, queue: QueueTail) -> None: ...
    def skip(self, topic: bytes, before: int) -> None: ...
    def run(
        self, file: MappedFile, position: int, end: int, *, check_crc: int = 1
    ) -> DispatchResult: ...
