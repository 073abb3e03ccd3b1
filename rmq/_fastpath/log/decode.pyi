from enum import IntEnum
from typing import final

from typing_extensions import Buffer

from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.offsets import PhysicalOffset, QueueOffset

__pyx_capi__: dict[str, object]

class RecordStatus(IntEnum):
    OK = 0
    BLANK = 1
    END = 2
    SHORT = 3
    BAD_MAGIC = 4
    BAD_SIZE = 5
    BAD_LENGTHS = 6
    BAD_CRC = 7
    BAD_OFFSET = 8

@final
class Record:
    size: int
    magic: int
    body_crc: int
    queue_id: int
    flag: int
    queue_offset: QueueOffset
    physical_offset: PhysicalOffset
    sys_flag: int
    born_ms: int
    born_host: bytes
    store_ms: int
    store_host: bytes
    reconsume_times: int
    prepared_offset: int
    body: bytes
    topic: str
    properties: bytes

def check_record(
    data: Buffer | MappedFile, position: int = 0, *, check_crc: int = 1
) -> tuple[RecordStatus, int]: ...
def decode_record(
    data: Buffer | MappedFile, position: int = 0, *, check_crc: int = 1
) -> Record: ...

@final
class RecordView:
    def __init__(self, data: Buffer | MappedFile, position: int = 0) -> None: ...
    size: int
    is_message: bool
    queue_id: int
    queue_offset: int
    physical_offset: int
    store_ms: int
    properties: bytes
