"""Finds the messages of a pull: entries of its queue, filtered by tags, and their
records, filtered by SQL92.

It reads as `StoreReader.get` and `PullHandler` do, from memory alone. It declines an
offset outside the queue, a pull without a match, and records or entries that are not in
memory. Belongs to the thread of the reactor.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.bytes.selector cimport Selector
from rmq._fastpath.handlers.held_pulls cimport Pull
from rmq._fastpath.handlers.pull_table cimport PullTable, PullView
from rmq._fastpath.log.block_digests cimport BLOCK_SIZE
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.layout cimport QueueEntryLayout
from rmq._fastpath.log.mapped_file cimport BLOCKS_RIGHT, PAGES_IN_MEMORY, MappedFile
from rmq._fastpath.log.own_record cimport COMPARED_BYTES, is_own_record
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.scan cimport (
    RUN_LIMIT, ScanQuery, ScanResult, add_record, clear_result, scan_entries,
)
from rmq._fastpath.reactor.native cimport DECLINED, SERVED, Conn, Verdict, decline

cdef enum:
    ENTRY_SIZE = QueueEntryLayout.ENTRY_SIZE
    PULL_RETRY_IMMEDIATELY = 20

cdef str LIGHT_PREFIX = "%LMQ%"


cdef int64_t _entry_end(const uint8_t *entry) noexcept nogil:
    """Return the end of the record of a queue entry."""
    return (
        <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT)
        + <int32_t>get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
    )


cdef bint _contains(void *file, int64_t byte) noexcept nogil:
    """True if this open file contains the byte at an offset of its queue or log."""
    return (
        file != NULL
        and (<MappedFile>file).address != NULL
        and 0 <= byte - (<MappedFile>file).base_offset < (<MappedFile>file).size
    )


cdef int64_t _visible_end(void *queue, int64_t confirm_offset) noexcept nogil:
    """Return the offset after the last entry whose record ends before `confirm_offset`.

    -1 if that entry is not in memory.
    """
    cdef const uint8_t *entries
    cdef int64_t low, high, middle, first
    if (<QueueTail>queue).end_physical <= confirm_offset:
        return (<QueueTail>queue).next_offset
    first = max((<QueueTail>queue).first_offset, (<QueueTail>queue).low_offset)
    low, high = first, (<QueueTail>queue).next_offset
    entries = (<QueueTail>queue).entry_at(first)
    if entries == NULL:
        return -1
    while low < high:
        middle = (low + high) // 2
        if _entry_end(entries + (middle - first) * ENTRY_SIZE) <= confirm_offset:
            low = middle + 1
        else:
            high = middle
    if low == first and first > (<QueueTail>queue).low_offset:
        return -1
    return low


cdef int64_t visible_end(PullTable table, void *queue) noexcept nogil:
    """Return the offset after the last message of a queue that readers see.

    -1 if it is not known from memory.
    """
    cdef int64_t end = table.end_offset()
    if end < 0:
        return -1
    return _visible_end(queue, end if table.durable is None else table.durable.load())


cdef const uint8_t *_find_in_file(
    PullTable table, Conn *conn, const Pull *pull, const PullReply *pulled,
    int64_t offset, int64_t *size,
) noexcept nogil:
    """Find entries in the queue file that the view maps; NULL if the file does not
    contain them.

    Lowers `size` to the end of the file, or of the bytes written to it.
    """
    cdef void *queue = (<PullView>pulled.view).queues[pull.queue_id].tail
    cdef void *file = (<PullView>pulled.view).queues[pull.queue_id].map
    cdef int64_t position
    if not _contains(file, offset * ENTRY_SIZE):
        decline(conn, FILE_UNKNOWN)
        return NULL
    position = offset * ENTRY_SIZE - (<MappedFile>file).base_offset
    (<MappedFile>file)._write_position = min(
        (<MappedFile>file).size,
        (<QueueTail>queue).flushed_offset * ENTRY_SIZE
        - (<MappedFile>file).base_offset,
    )
    size[0] = min(size[0], (<MappedFile>file)._write_position - position)
    if not table.is_in_memory(file, position, size[0], pull.now_ms):
        decline(conn, NOT_RESIDENT)
        return NULL
    return (<MappedFile>file).address + position


cdef void _set_limits(
    PullTable table, const Pull *pull, int64_t distance, ScanQuery *wanted
) noexcept nogil:
    """Set the limits of a read that begins `distance` bytes before the log's end."""
    if distance <= table.hot_window:
        wanted.max_messages = min(wanted.max_messages, table.hot_messages)
        wanted.max_bytes = table.hot_bytes
    else:
        wanted.max_messages = min(wanted.max_messages, table.cold_messages)
        wanted.max_bytes = table.cold_bytes
    wanted.max_messages = max(<int64_t>1, wanted.max_messages)
    if pull.max_bytes > 0:
        wanted.max_bytes = min(wanted.max_bytes, pull.max_bytes)


cdef bint _has_right_blocks(
    PullTable table, void *file, int64_t position, int64_t size, int64_t now_ms
) noexcept nogil:
    """False if a block has other bytes than were written, or is not in memory.

    The table knows which pages are in memory. So it makes one query to the kernel for
    many blocks, which costs as much as the check of one.
    """
    cdef int64_t begin, end
    if (<MappedFile>file).has_fresh_blocks(position, size):
        return True
    begin = position - position % BLOCK_SIZE
    end = position + size + BLOCK_SIZE - 1
    end = min(end - end % BLOCK_SIZE, (<MappedFile>file)._write_position)
    return table.is_in_memory(file, begin, end - begin, now_ms) and (
        (<MappedFile>file).check_blocks(position, size, PAGES_IN_MEMORY) == BLOCKS_RIGHT
    )


cdef bint _is_resident(
    PullTable table, const ScanResult *found, int64_t now_ms
) noexcept nogil:
    """True if all records are in memory, so that a copy does not wait for the disk.

    False also if a block has other bytes than were written: Python decides.
    """
    cdef int64_t floor = table.reader.ring_floor()
    cdef void *file = NULL
    cdef int64_t position, size
    cdef int i
    for i in range(found.run_count):
        if found.starts[i] >= floor:
            continue
        if not _contains(file, found.starts[i]):
            file = table.reader.file_at(found.starts[i])
            if file == NULL:
                return False
        position = found.starts[i] - (<MappedFile>file).base_offset
        size = min(found.sizes[i], floor - found.starts[i])
        if position + size > (<MappedFile>file)._write_position:
            return False
        if not table.is_in_memory(file, position, size, now_ms):
            return False
        if not _has_right_blocks(table, file, position, size, now_ms):
            return False
    return True


cdef bint _is_light(void *queue) noexcept with gil:
    """Whether the records of a queue have places in other queues."""
    return (<QueueTail>queue).topic.startswith(LIGHT_PREFIX)


cdef bint _has_own_records(
    PullTable table, void *queue, const uint8_t *entry, int64_t queue_offset,
    const ScanResult *found,
) noexcept nogil:
    """True if entries from a file are the entries of the found records.

    All these records are in memory. Python decides about an entry with other bytes, and
    about an entry without a record.
    """
    cdef int64_t queue_id = (<QueueTail>queue).queue_id
    cdef int64_t floor = table.reader.ring_floor()
    cdef int64_t start, end, size
    cdef const uint8_t *record
    cdef int i
    if found.removed:
        return False
    for i in range(found.run_count):
        start = found.starts[i]
        end = start + found.sizes[i]
        record = table.reader.address_of(start)
        while start < end:
            if <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT) == start:
                if record == NULL or end - start < COMPARED_BYTES:
                    return False
                if not is_own_record(record, entry, queue_id, queue_offset):
                    if queue_id < 0 or not _is_light(queue):
                        return False
                    queue_id = -1
                    continue
                size = get32(record)
                if start < floor <= start + size < end:     # the ring has the next one
                    record = table.reader.address_of(start + size)
                else:
                    record += size
                start += size
            entry += ENTRY_SIZE
            queue_offset += 1
    return True


cdef Verdict _read(
    PullTable table, Conn *conn, const Pull *pull, const PullReply *pulled,
    int64_t offset, ScanQuery *wanted, ScanResult *found,
) noexcept nogil:
    """Read from an offset on, as `StoreReader.get` does."""
    cdef void *queue = (<PullView>pulled.view).queues[pull.queue_id].tail
    cdef const uint8_t *entry = (<QueueTail>queue).entry_at(offset)
    cdef bint is_from_file = entry == NULL
    cdef int64_t size, distance
    wanted.max_examined = max(
        table.scan_bytes, wanted.max_messages * ENTRY_SIZE
    ) // ENTRY_SIZE
    size = ENTRY_SIZE * min(pulled.high - offset, wanted.max_examined)
    if is_from_file:
        entry = _find_in_file(table, conn, pull, pulled, offset, &size)
        if entry == NULL:
            return DECLINED
    distance = table.end_offset() - <int64_t>get64(entry)
    if distance > table.read_window:
        return decline(conn, NOT_RESIDENT)
    _set_limits(table, pull, distance, wanted)
    scan_entries(entry, entry + size, wanted, found)
    if found.messages and not _is_resident(table, found, pull.now_ms):
        return decline(conn, NOT_RESIDENT)
    if (
        is_from_file
        and found.messages
        and not _has_own_records(table, queue, entry, offset, found)
    ):
        return decline(conn, NOT_RESIDENT)
    return SERVED


cdef bint _select(
    PullTable table, Selector selector, const ScanResult *read, ScanResult *found
) noexcept nogil:
    """Add the records that a selector accepts; False for a record that is not whole."""
    cdef RecordParts parts
    cdef const uint8_t *p
    cdef int64_t offset, end
    cdef int i
    for i in range(read.run_count):
        offset, end = read.starts[i], read.starts[i] + read.sizes[i]
        while offset < end:
            p = table.reader.address_of(offset)
            if p == NULL or split_record(p, end - offset, False, &parts) != OK:
                return False
            if selector.match_text(p + parts.properties_at, parts.properties_size):
                add_record(found, offset, parts.size)
            offset += parts.size
    return True


cdef Verdict _read_selected(
    PullTable table, Conn *conn, const Pull *pull, const PullReply *pulled,
    ScanQuery *wanted, ScanResult *found,
) noexcept nogil:
    """Read batches until one has messages that the view's selector accepts.

    A batch is as large as a pull, as in `PullHandler`. The scan ends after as many
    entries as one pull examines, or before records that are not in memory.
    """
    cdef ScanResult read
    cdef int64_t limit = max(<int64_t>1, pull.max_messages)
    cdef int64_t end = pull.offset + max(
        table.scan_bytes // ENTRY_SIZE, pull.max_messages
    )
    cdef int64_t offset = pull.offset
    if limit > RUN_LIMIT:
        return decline(conn, TOO_MUCH)
    clear_result(found)
    while offset < min(end, pulled.high) and not found.messages:
        wanted.max_messages = min(limit, end - offset)
        if not _read(table, conn, pull, pulled, offset, wanted, &read):
            return DECLINED if offset == pull.offset else SERVED
        if not read.messages:
            return decline(conn, GONE) if offset == pull.offset else SERVED
        if not _select(table, (<PullView>pulled.view).selector, &read, found):
            return decline(conn, NOT_RESIDENT)
        offset += read.examined
        found.examined += read.examined
    return SERVED


cdef Verdict find_messages(
    PullTable table, Conn *conn, const Pull *pull, PullReply *pulled, ScanResult *found
) noexcept nogil:
    """Find the messages of a pull, as `PullHandler` does."""
    cdef ScanQuery wanted
    cdef void *view = pulled.view
    cdef void *queue = (<PullView>view).queues[pull.queue_id].tail
    cdef int64_t log_end = table.end_offset()
    if queue == NULL or (<QueueTail>queue).is_deleted or log_end < 0:
        return decline(conn, VIEW_UNKNOWN)
    wanted.confirm_offset = log_end
    if table.durable is not None:
        wanted.confirm_offset = table.durable.load()
    if (<QueueTail>queue).low_physical < (<QueueTail>queue).tails.log_start:
        return decline(conn, OUTSIDE)       # Python has to search the minimum
    pulled.low = (<QueueTail>queue).low_offset
    pulled.high = _visible_end(queue, wanted.confirm_offset)
    if not pulled.low <= pull.offset < pulled.high:
        return decline(conn, OUTSIDE)
    wanted.codes = (<PullView>view).codes
    wanted.code_count = (<PullView>view).code_count
    wanted.min_physical_offset = table.min_offset()
    if (<PullView>view).selector is not None:
        if not _read_selected(table, conn, pull, pulled, &wanted, found):
            return DECLINED
    else:
        wanted.max_messages = max(<int64_t>1, pull.max_messages)
        if not _read(table, conn, pull, pulled, pull.offset, &wanted, found):
            return DECLINED
        if found.removed == found.examined:
            return decline(conn, GONE)
    pulled.next_offset = pull.offset + found.examined
    if not found.messages:
        pulled.code = PULL_RETRY_IMMEDIATELY
        pulled.json_remark = b',"remark":"NO_MATCHED_MESSAGE"'
        pulled.remark = b"NO_MATCHED_MESSAGE"
        return decline(conn, NOTHING_MATCHES)
    pulled.code = 0
    pulled.json_remark, pulled.remark = b',"remark":"FOUND"', b"FOUND"
    return SERVED
