"""Units of the timer log, without Python objects.

`add_units` writes the units of records from the timer's queue, `walk_units` follows the
chain of a slot, and `due_records` reads the records of its units.  Layout:
`rmq/store/timer/log.py`.
`add_units` handles plain records and stops before any other record. The plugin `timer`
handles the others one by one: recalls, messages that are due or roll on, unusual
properties. Belongs to the thread that owns the store.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcmp

from rmq._fastpath.bytes.ascii cimport is_literal, put_integer, put_literal
from rmq._fastpath.bytes.endian cimport get32, get64, put32, put64
from rmq._fastpath.bytes.hashing cimport java_hash_of
from rmq._fastpath.bytes.utf8 cimport is_utf8
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.layout cimport QueueEntryLayout, RecordLayout
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail

from rmq.core.errors import RecordDamaged

cdef enum:
    UNIT_SIZE = 52
    FILLER_SIZE = 16            # bytes that stay free at the end of a file of units
    PLAIN = 1                   # bits of a unit that neither rolls nor recalls
    PAIR_LIMIT = 64             # properties; Python handles messages with more
    DIGITS_LIMIT = 18
    WALK_LIMIT = 2048
    ADDED_LIMIT = 80            # bytes of the properties of a delivered message
    DAY_MS = 86_400_000


cdef struct WaitingText:        # from the properties of a waiting message
    int64_t out_ms
    const uint8_t *topic
    int64_t topic_size

cdef struct Unit:
    int64_t previous
    int32_t bits
    int64_t written_ms
    int32_t delay_ms
    int64_t offset
    int32_t size
    int32_t topic_hash


cdef bint _read_number(const uint8_t *p, int64_t size, int64_t *value) noexcept nogil:
    cdef int64_t i
    if not 0 < size <= DIGITS_LIMIT:
        return False
    value[0] = 0
    for i in range(size):
        if not 48 <= p[i] <= 57:
            return False
        value[0] = value[0] * 10 + (p[i] - 48)
    return True


cdef bint _read_text(const uint8_t *p, int64_t size, WaitingText *found) noexcept nogil:
    """Read properties; False unless each pair is whole, terminated and unique."""
    cdef const uint8_t *names[PAIR_LIMIT]
    cdef int64_t sizes[PAIR_LIMIT]
    cdef const uint8_t *end = p + size
    cdef const uint8_t *middle
    cdef const uint8_t *stop
    cdef int32_t count = 0, i
    cdef int64_t length
    cdef uint64_t bit, seen = 0
    cdef bint has_time = False
    found.topic = NULL
    while p < end:
        stop = <const uint8_t *>memchr(p, 2, end - p)
        if stop == NULL or count == PAIR_LIMIT:
            return False
        middle = <const uint8_t *>memchr(p, 1, stop - p)
        if middle == NULL or middle == p or middle + 1 == stop:
            return False
        length = middle - p
        bit = <uint64_t>1 << ((length + 31 * (middle - 1)[0]) & 63)
        for i in range(count if seen & bit else 0):
            if sizes[i] == length and memcmp(names[i], p, length) == 0:
                return False
        seen |= bit
        names[count] = p
        sizes[count] = length
        count += 1
        if is_literal(p, length, b"TIMER_DEL_UNIQKEY"):
            return False
        if is_literal(p, length, b"TIMER_OUT_MS"):
            has_time = _read_number(middle + 1, stop - middle - 1, &found.out_ms)
        elif is_literal(p, length, b"REAL_TOPIC"):
            found.topic = middle + 1
            found.topic_size = stop - middle - 1
        p = stop + 1
    return has_time and found.topic != NULL


cdef const uint8_t *_unit_at(list files, int64_t position):
    """Return the unit at a position, or NULL."""
    cdef MappedFile file
    cdef int64_t i, start
    if not files:
        return NULL
    file = files[0]
    if position < file.base_offset:
        return NULL
    i = (position - file.base_offset) // file.size
    if i >= len(files):
        return NULL
    file = files[i]
    start = position - file.base_offset
    if start % UNIT_SIZE or start + UNIT_SIZE > file._write_position:
        return NULL
    if file.address == NULL or get32(file.address + start) != UNIT_SIZE:
        return NULL
    return file.address + start


cdef void _put_unit(uint8_t *p, const Unit *unit) noexcept nogil:
    put32(p, UNIT_SIZE)
    put64(p + 4, unit.previous)
    put32(p + 12, unit.bits)
    put64(p + 16, unit.written_ms)
    put32(p + 24, unit.delay_ms)
    put64(p + 28, unit.offset)
    put32(p + 36, unit.size)
    put32(p + 40, unit.topic_hash)
    put64(p + 44, 0)


def walk_units(list files not None, int64_t position, int64_t after, int64_t most):
    """Follow a slot's chain from `position` back to `after`.

    Returns at most `most` positions, newest first, as bytes of int64, and the position
    to continue from, -1 at the end.
    """
    cdef int64_t found[WALK_LIMIT]
    cdef int64_t count = 0, previous
    cdef const uint8_t *unit
    most = min(most, <int64_t>WALK_LIMIT)
    while position > after and count < most:
        unit = _unit_at(files, position)
        if unit == NULL:
            position = -1
            break
        found[count] = position
        count += 1
        previous = <int64_t>get64(unit + 4)
        position = previous if previous < position else -1
    if position <= after:
        position = -1
    return PyBytes_FromStringAndSize(<char *>found, count * sizeof(int64_t)), position


def add_units(  # tidy: long — one loop: check, write and count
    MappedFile file not None,
    dict slots not None,
    const uint8_t[::1] records not None,
    int64_t position,
    *,
    int64_t precision_ms,
    int64_t first_slot,
    int64_t now,
    int64_t end_slot,
):
    """Write units for plain records from `position` on, and add them to their slots.

    Stops before a record that is not plain, or whose slot is not in `slots` or not in
    [first_slot, end_slot). It also stops at the end of the allocated part of the file.
    `now` is the current slot. Returns the position and the queue offset after the last
    record, and (topic, hash, records) of each run of one topic; None if it wrote no
    unit.
    """
    cdef uint8_t data[UNIT_SIZE]
    cdef Unit unit
    cdef RecordParts parts
    cdef WaitingText text
    cdef const uint8_t *p
    cdef const uint8_t *topic = NULL
    cdef int64_t topic_size = 0, in_topic = 0, readable = records.shape[0]
    cdef int64_t slot = 0, count = 0, following = 0, delay_ms, last, rest
    cdef list topics = []
    cdef object entry = None
    unit.bits = PLAIN
    unit.written_ms = now * precision_ms
    while 0 <= position < readable:
        p = &records[position]
        rest = min(file.allocated, file.size - FILLER_SIZE) - file._write_position
        if rest < UNIT_SIZE or (
            split_record(p, readable - position, False, &parts) != OK
        ):
            break
        if not _read_text(
            p + parts.properties_at, parts.properties_size, &text
        ) or not is_utf8(p + parts.properties_at, parts.properties_size):
            break
        if entry is None or text.out_ms // precision_ms != slot:
            slot = text.out_ms // precision_ms
            entry = slots.get(slot)
        delay_ms = slot * precision_ms - unit.written_ms
        if (
            entry is None or not first_slot <= slot < end_slot
            or not -DAY_MS < delay_ms <= INT32_MAX
        ):
            break
        last = file.base_offset + file._write_position
        unit.previous = entry.last
        if unit.previous >= last:
            break
        if topic_size != text.topic_size or memcmp(topic, text.topic, topic_size) != 0:
            if in_topic:
                topics.append((topic[:topic_size].decode(), unit.topic_hash, in_topic))
            topic, topic_size, in_topic = text.topic, text.topic_size, 0
            unit.topic_hash = java_hash_of(topic, topic_size)
        unit.delay_ms = <int32_t>delay_ms
        unit.offset = parts.physical_offset
        unit.size = <int32_t>parts.size
        _put_unit(data, &unit)
        file.store(file._write_position, data, UNIT_SIZE)
        file._write_position += UNIT_SIZE
        entry.last = last
        entry.count += 1
        in_topic += 1
        count += 1
        position += parts.size
        following = parts.queue_offset + 1
    if count == 0:
        return None
    topics.append((topic[:topic_size].decode(), unit.topic_hash, in_topic))
    return position, following, topics


cdef bytes _delivery_properties(int64_t written_ms, int64_t now_ms):
    """Return the properties that a delivered message gets."""
    cdef uint8_t text[ADDED_LIMIT]
    cdef uint8_t *end = put_literal(text, b"TIMER_ENQUEUE_MS\1")
    end = put_integer(end, written_ms)
    end = put_literal(end, b"\2TIMER_DEQUEUE_MS\1")
    end = put_literal(put_integer(end, now_ms), b"\2")
    return text[:end - text]


def due_records(  # tidy: long — one loop: each check of a record
    list files not None,
    const int64_t[::1] positions not None,
    LogReader reader not None,
    QueueTail queue not None,
    find_file not None,
    *,
    int64_t min_offset,
    int64_t confirm_offset,
    int64_t now_ms,
):
    """Copy the records of plain units, in the order of their positions.

    Stops before a unit that is invalid, rolls or recalls another, and before a damaged
    record. It also stops before a unit whose record has no entry in `queue` from
    `min_offset` on: clients cannot forge entries. `find_file` returns the file of an
    entry that is not in memory. Returns the records, the properties that each gets at
    delivery, and the hashes of their topics.
    """
    cdef list records = [], added = [], hashes = []
    cdef Py_ssize_t i
    cdef const uint8_t *unit
    cdef const uint8_t *p
    cdef const uint8_t *entry
    cdef MappedFile file = None
    cdef int64_t offset, size, at, written_ms, start
    cdef object data
    for i in range(positions.shape[0]):
        unit = _unit_at(files, positions[i])
        if unit == NULL or get32(unit + 12) != PLAIN:
            break
        written_ms = <int64_t>get64(unit + 16)
        offset, size = <int64_t>get64(unit + 28), <int32_t>get32(unit + 36)
        if written_ms < 0 or size < RecordLayout.HEAD_SIZE or (
            offset > confirm_offset - size
        ):
            break
        try:
            data = reader.read(offset, size)
        except RecordDamaged:
            break
        if data is None:
            break
        p = <const uint8_t *>PyBytes_AS_STRING(data)
        at = <int64_t>get64(p + RecordLayout.QUEUE_OFFSET_AT)
        if (
            <int32_t>get32(p + RecordLayout.SIZE_AT) != size
            or <int64_t>get64(p + RecordLayout.PHYSICAL_OFFSET_AT) != offset
            or not min_offset <= at < queue.next_offset
        ):
            break
        entry = queue.entry_at(at)
        if entry == NULL:
            start = at * QueueEntryLayout.ENTRY_SIZE
            if file is None or not 0 <= start - file.base_offset < file.size:
                file = find_file(at)
                if file is None:
                    break
            start -= file.base_offset
            file.check_range(start, QueueEntryLayout.ENTRY_SIZE, file.size)
            entry = file.address + start
        if (
            <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT) != offset
            or <int32_t>get32(entry + QueueEntryLayout.ENTRY_SIZE_AT) != size
        ):
            break
        records.append(data)
        added.append(_delivery_properties(written_ms, now_ms))
        hashes.append(<int32_t>get32(unit + 40))
    return records, added, hashes
