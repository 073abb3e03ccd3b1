from enum import IntEnum
from typing import NamedTuple

from typing_extensions import Buffer

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.extent import Extent
from rmq._fastpath.log.mapped_file import MappedFile

__pyx_capi__: dict[str, object]

class ScanStop(IntEnum):
    """Why a queue scan ended."""

    SCAN_END = 0
    SCAN_FULL = 1
    SCAN_LIMIT = 2

class QueueScan(NamedTuple):
    """Outcome of `scan_queue`."""

    runs: list[tuple[int, int]]
    message_count: int
    byte_count: int
    examined: int
    removed: int
    stop: ScanStop

class WalkedRecord(NamedTuple):
    """The fields of one record that recovery needs."""

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
) -> QueueScan:
    """Collect records for a pull from `entries`, 20 bytes each.

    The first matching record is always taken. It skips entries below
    `min_physical_offset` and fillers, and counts them as `removed`. The scan ends
    before an entry that reaches beyond `confirm_offset` or was never written.
    """

def walk_log(
    file: Extent,
    position: int,
    end: int,
    *,
    check_crc: bool = True,
    limit: int = 4096,
) -> tuple[RecordStatus, int, list[WalkedRecord]]:
    """Check records from `position` on, at most `limit` of them.

    Returns (status, position, records). The status is OK at the limit or the end, else
    the reason why there is no valid record at the position.
    """

def survey_log(
    file: Extent,
    position: int,
    end: int,
    rows: Buffer,
    *,
    check_crc: bool = True,
) -> tuple[RecordStatus, int, int]:
    """Check records from `position` on into `rows`, without the GIL.

    A row: physical offset, size, store ms, queue id, queue offset, system flag, tags
    code, FNV-1a of the topic. Returns (status, position, rows filled); OK if the rows
    or the range ended after a record.
    """

def topic_hash(topic: Buffer) -> int:
    """Hash a topic as `survey_log` does."""

def read_entry(file: MappedFile, position: int) -> tuple[int, int, int]:
    """Return (physical offset, size, tags code) of the queue entry at `position`."""
