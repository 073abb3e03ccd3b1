from enum import IntEnum
from typing import NamedTuple

from typing_extensions import Buffer

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile
from rmq.core.offsets import PhysicalOffset

__pyx_capi__: dict[str, object]

class ScanStop(IntEnum):
    SCAN_END = 0
    SCAN_FULL = 1
    SCAN_LIMIT = 2

class QueueScan(NamedTuple):
    runs: list[tuple[int, int]]
    message_count: int
    byte_count: int
    examined: int
    removed: int
    stop: ScanStop

class WalkedRecord(NamedTuple):
    physical_offset: int
    size: int
    store_ms: int
    queue_id: int
    queue_offset: int
    sys_flag: int
    tags_code: int
    topic: bytes
    properties: bytes

def scan_queue(
    entries: Buffer,
    *,
    tag_codes: tuple[int, ...] | None = None,
    max_messages: int,
    max_bytes: int,
    max_examined: int,
    confirm_offset: int,
    min_physical_offset: int = 0,
) -> QueueScan: ...
def walk_log(
    file: Extent, position: int, end: int, *, check_crc: int = 1, limit: int = 4096
) -> tuple[RecordStatus, int, list[WalkedRecord]]: ...
def count_matching(
    file: MappedFile,
    entries: Buffer,
    topic: bytes,
    queue_id: int,
    first: int,
    *,
    is_placed: bool = True,
    check_tags: bool = True,
) -> int: ...
def survey_log(
    file: Extent, position: int, end: int, rows: Buffer, *, check_crc: bool = True
) -> tuple[RecordStatus, int, int]: ...
def topic_hash(topic: Buffer) -> int: ...
def read_entry(file: MappedFile, position: int) -> tuple[PhysicalOffset, int, int]: ...
