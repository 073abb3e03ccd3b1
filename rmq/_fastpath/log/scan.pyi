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
    """What recovery needs of one record."""

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

    The first matching record is always taken.  Entries below `min_physical_offset` and
    fillers are passed over and counted as `removed`; the scan ends before an entry that
    reaches beyond `confirm_offset` or was never written.
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

    Returns (status, position, records): OK if the limit or the end was reached between
    records, else why the walk stopped there.
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
    code, FNV-1a of the topic.  Returns (status, position, rows filled); OK if the rows
    or the range ended between records.
    """

def topic_hash(topic: Buffer) -> int:
    """Hash a topic as `survey_log` does."""

def read_entry(file: MappedFile, position: int) -> tuple[int, int, int]:
    """(physical offset, size, tags code) of the queue entry at `position`."""
