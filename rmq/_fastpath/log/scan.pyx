"""Scans: a consume queue for a pull, a commit-log file for recovery.

`scan_queue` reads an entry in 2 to 3 ns and merges records that are neighbours in the
log into runs. `walk_log` checks every record and returns the fields that recovery
needs. `survey_log` writes them to an array, for tools that read whole stores.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MIN, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.log.decode cimport (
    BAD_OFFSET,
    OK,
    RecordParts,
    RecordStatus,
    split_record,
)
from rmq._fastpath.log.encode cimport tags_code_of
from rmq._fastpath.log.extent cimport Extent
from rmq._fastpath.log.layout cimport QueueEntryLayout
from rmq._fastpath.log.mapped_file cimport MappedFile

from typing import NamedTuple

from rmq._fastpath.log.decode import RecordStatus as Status

cdef enum:
    SURVEY_COLUMNS = 8

cdef uint64_t FNV_BASIS = 0xCBF29CE484222325ULL
cdef uint64_t FNV_PRIME = 0x100000001B3ULL


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


cdef inline bint _matches(const ScanQuery *wanted, int64_t tags) noexcept nogil:
    """Return whether a pull wants the records with this tags code."""
    cdef int64_t i
    if wanted.code_count < 0:
        return True
    for i in range(wanted.code_count):
        if wanted.codes[i] == tags or tags < INT32_MIN:
            return True
    return False


cdef void clear_result(ScanResult *found) noexcept nogil:
    found.messages = found.bytes = found.examined = found.removed = 0
    found.run_count = 0


cdef void add_record(
    ScanResult *found, int64_t offset, int64_t size
) noexcept nogil:
    """Add a record; if it follows the last run in the log, add it to this run."""
    cdef int run = found.run_count - 1
    if run >= 0 and found.starts[run] + found.sizes[run] == offset:
        found.sizes[run] += size
    else:
        found.starts[run + 1] = offset
        found.sizes[run + 1] = size
        found.run_count += 1
    found.messages += 1
    found.bytes += size


cdef ScanStop scan_entries(
    const uint8_t *p, const uint8_t *end, const ScanQuery *wanted, ScanResult *found
) noexcept nogil:
    """Collect records from the entries in [p, end), see `scan_queue`."""
    cdef int64_t offset, size, tags
    clear_result(found)
    while p + QueueEntryLayout.ENTRY_SIZE <= end:
        if found.examined >= wanted.max_examined:
            return SCAN_LIMIT
        offset = <int64_t>get64(p + QueueEntryLayout.ENTRY_OFFSET_AT)
        size = get32(p + QueueEntryLayout.ENTRY_SIZE_AT)
        tags = <int64_t>get64(p + QueueEntryLayout.ENTRY_TAGS_AT)
        if size == 0:
            return SCAN_END
        if (
            size == QueueEntryLayout.FILLER_SIZE
            or offset < wanted.min_physical_offset
        ):
            found.removed += 1
        elif offset > wanted.confirm_offset - size:
            return SCAN_END
        else:
            if found.messages and (
                found.messages >= wanted.max_messages
                or found.bytes + size > wanted.max_bytes
                or found.run_count >= RUN_LIMIT
            ):
                return SCAN_FULL
            if _matches(wanted, tags):
                add_record(found, offset, size)
        found.examined += 1
        p += QueueEntryLayout.ENTRY_SIZE
    return SCAN_END


def scan_queue(
    const uint8_t[::1] entries not None,
    *,
    tuple tag_codes=None,
    int64_t max_messages,
    int64_t max_bytes,
    int64_t max_examined,
    int64_t confirm_offset,
    int64_t min_physical_offset=0,
):
    """Collect records for a pull from `entries`, 20 bytes each.

    It always returns the first matching record. It skips entries below
    `min_physical_offset` and fillers, and counts them as `removed`. The scan ends
    before an entry that reaches beyond `confirm_offset` or was never written. Codes
    below -2^31 are addresses in Java's consume queue ext files: the consumer then
    checks the tags in the record.
    """
    cdef int64_t codes[TAG_LIMIT]
    cdef ScanQuery wanted
    cdef ScanResult found
    cdef ScanStop stop
    cdef Py_ssize_t i
    cdef const uint8_t *start = NULL
    if entries.shape[0]:
        start = &entries[0]
    wanted.codes = codes
    wanted.code_count = -1
    if tag_codes is not None and len(tag_codes) <= TAG_LIMIT:
        wanted.code_count = len(tag_codes)
        for i in range(wanted.code_count):
            codes[i] = tag_codes[i]
    wanted.max_messages = max_messages
    wanted.max_bytes = max_bytes
    wanted.max_examined = max_examined
    wanted.confirm_offset = confirm_offset
    wanted.min_physical_offset = min_physical_offset
    with nogil:
        stop = scan_entries(start, start + entries.shape[0], &wanted, &found)
    return QueueScan(
        [(found.starts[i], found.sizes[i]) for i in range(found.run_count)],
        found.messages, found.bytes, found.examined, found.removed, ScanStop(stop),
    )


def walk_log(
    Extent file not None,
    int64_t position,
    int64_t end,
    *,
    int check_crc=1,
    int64_t limit=4096,
):
    """Check records from `position` on, at most `limit` of them.

    Returns (status, position, records). The status is OK at the limit or the end.
    Another status is the reason why there is no valid record at the position.
    """
    cdef RecordParts parts
    cdef RecordStatus status = OK
    cdef const uint8_t *p
    cdef list records = []
    file.check_range(position, end - position, file.size)
    while position < end and len(records) < limit:
        p = file.address + position
        with nogil:
            status = split_record(p, end - position, check_crc, &parts)
        if status == OK and parts.physical_offset != file.base_offset + position:
            status = BAD_OFFSET
        if status != OK:
            break
        records.append(WalkedRecord(
            parts.physical_offset,
            parts.size,
            parts.store_ms,
            parts.queue_id,
            parts.queue_offset,
            parts.sys_flag,
            tags_code_of(p + parts.properties_at, parts.properties_size),
            PyBytes_FromStringAndSize(<char *>p + parts.topic_at, parts.topic_size),
            PyBytes_FromStringAndSize(
                <char *>p + parts.properties_at, parts.properties_size
            ),
        ))
        position += parts.size
    return Status(status), position, records


def count_matching(
    MappedFile file not None,
    const uint8_t[::1] entries not None,
    bytes topic not None,
    int64_t queue_id,
    int64_t first,
    *,
    bint is_placed=True,
    bint check_tags=True,
):
    """Return how many entries at the start of `entries` have their records in `file`.
    Such a record is at the entry's offset, and has the entry's size and tags code. It
    has topic, queue and queue offset of the entry; the first entry's offset is `first`.
    Without `is_placed` these three are not compared: light message queues have records
    of other queues. Bodies are not checked.
    """
    cdef RecordParts parts
    cdef const uint8_t *entry
    cdef const uint8_t *p
    cdef const char *name = topic
    cdef int64_t name_size = len(topic), position, i
    for i in range(entries.shape[0] // QueueEntryLayout.ENTRY_SIZE):
        entry = &entries[i * QueueEntryLayout.ENTRY_SIZE]
        position = (
            <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT) - file.base_offset
        )
        if not 0 <= position < file.size:
            return i
        p = file.address + position
        if (
            split_record(p, file.size - position, False, &parts) != OK
            or parts.physical_offset != file.base_offset + position
            or parts.size != get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
        ):
            return i
        if is_placed and (
            parts.queue_offset != first + i
            or parts.queue_id != queue_id
            or parts.topic_size != name_size
            or memcmp(p + parts.topic_at, name, name_size)
        ):
            return i
        if check_tags and (
            <int64_t>get64(entry + QueueEntryLayout.ENTRY_TAGS_AT)
            != tags_code_of(p + parts.properties_at, parts.properties_size)
        ):
            return i
    return entries.shape[0] // QueueEntryLayout.ENTRY_SIZE


def survey_log(
    Extent file not None,
    int64_t position,
    int64_t end,
    int64_t[:, ::1] rows not None,
    *,
    bint check_crc=True,
):
    """Check records from `position` on into `rows`, without the GIL.

    A row: physical offset, size, store ms, queue id, queue offset, system flag, tags
    code, FNV-1a of the topic. Returns (status, position, rows filled); OK if the rows
    or the range ended after a record.
    """
    cdef RecordParts parts
    cdef RecordStatus status = OK
    cdef const uint8_t *p
    cdef int64_t count = 0
    cdef int64_t limit = rows.shape[0]
    file.check_range(position, end - position, file.size)
    if rows.shape[1] != SURVEY_COLUMNS:
        raise ValueError(f"rows of {rows.shape[1]} columns, not {SURVEY_COLUMNS}")
    file.holders += 1
    with nogil:
        while position < end and count < limit:
            p = file.address + position
            status = split_record(p, end - position, check_crc, &parts)
            if status == OK and parts.physical_offset != file.base_offset + position:
                status = BAD_OFFSET
            if status != OK:
                break
            rows[count, 0] = parts.physical_offset
            rows[count, 1] = parts.size
            rows[count, 2] = parts.store_ms
            rows[count, 3] = parts.queue_id
            rows[count, 4] = parts.queue_offset
            rows[count, 5] = parts.sys_flag
            rows[count, 6] = tags_code_of(
                p + parts.properties_at, parts.properties_size
            )
            rows[count, 7] = fnv1a(p + parts.topic_at, parts.topic_size)
            count += 1
            position += parts.size
    file.holders -= 1
    return Status(status), position, count


cdef int64_t fnv1a(const uint8_t *p, int64_t size) noexcept nogil:
    cdef uint64_t value = FNV_BASIS
    cdef int64_t i
    for i in range(size):
        value = (value ^ p[i]) * FNV_PRIME
    return <int64_t>value


def topic_hash(const uint8_t[::1] topic not None):
    """Hash a topic as `survey_log` does."""
    if topic.shape[0] == 0:
        return fnv1a(NULL, 0)
    return fnv1a(&topic[0], topic.shape[0])


def read_entry(MappedFile file not None, int64_t position):
    """Return (physical offset, size, tags code) of the queue entry at `position`."""
    cdef const uint8_t *p
    file.check_range(position, QueueEntryLayout.ENTRY_SIZE, file.size)
    p = file.address + position
    return (
        <int64_t>get64(p + QueueEntryLayout.ENTRY_OFFSET_AT),
        get32(p + QueueEntryLayout.ENTRY_SIZE_AT),
        <int64_t>get64(p + QueueEntryLayout.ENTRY_TAGS_AT),
    )
