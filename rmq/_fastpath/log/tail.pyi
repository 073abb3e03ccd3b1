from typing_extensions import Buffer, disjoint_base

from rmq._fastpath.log.claim import Claim
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq._fastpath.log.queue_tail import QueueTail
from rmq.core.offsets import PhysicalOffset, QueueOffset

@disjoint_base
class LogTail:
    encoder: RecordEncoder
    file: MappedFile | None
    writer: LogWriter | None
    claim: Claim | None
    new_keys: NewKeys | None
    last_store_ms: int
    busy_limit_ms: int
    always_pwrite: bool
    is_writable: bool
    put_messages: int
    put_bytes: int
    def __init__(self, encoder: RecordEncoder) -> None: ...
    end_offset: PhysicalOffset
    def append(
        self,
        queue: QueueTail,
        is_queued: bool,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        properties: str,
        tags_code: int | None,
    ) -> tuple[QueueOffset, PhysicalOffset, PhysicalOffset] | None: ...
    def append_copies(
        self,
        queues: dict[bytes, QueueTail],
        records: Buffer,
        position: int,
        stored_until_ms: int,
        store_ms: int,
    ) -> tuple[int, int] | None: ...
    def append_timed(
        self,
        queues: dict[bytes, QueueTail],
        records: list[bytes],
        added: list[bytes],
        first: int,
        from_ms: int,
        until_ms: int,
        store_ms: int,
    ) -> int: ...
    def commit(self, count: int) -> PhysicalOffset: ...
    def end_file(self) -> None: ...
    def mark_touched(self, queue: QueueTail) -> None: ...
    def take_touched(self) -> list[QueueTail]: ...
