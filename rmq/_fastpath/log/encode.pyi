from typing import Self, final

from rmq._fastpath.log.mapped_file import MappedFile

__pyx_capi__: dict[str, object]

CRC_ROOM: str

@final
class RecordEncoder:
    staged_size: int
    tags_code: int
    store_host: bytes
    has_record_crc: bool
    def __new__(cls, store_host: bytes) -> Self: ...
    def stage(
        self,
        topic: bytes,
        queue_id: int,
        queue_offset: int,
        physical_offset: int,
        flag: int,
        sys_flag: int,
        born_ms: int,
        born_host: bytes,
        store_ms: int,
        reconsume_times: int,
        prepared_offset: int,
        body: bytes,
        properties: bytes,
    ) -> int: ...
    def stage_blank(self, rest: int) -> None: ...
    def staged_bytes(self) -> bytes: ...
    def commit(self, file: MappedFile, use_pwrite: bool) -> None: ...
    def discard(self) -> None: ...

def record_size(
    topic_size: int,
    body_size: int,
    properties_size: int,
    born_host_size: int = 8,
    store_host_size: int = 8,
) -> int: ...
