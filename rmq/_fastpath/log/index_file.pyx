"""IndexFile: one index file, filled from log records without the GIL.

Layout, big-endian: a header of 40 bytes, then slots, then entries.

header  i64 begin store time @0, i64 end store time @8, i64 begin physical offset @16,
        i64 end physical offset @24, i32 used slots @32, i32 entry count @36
slot    i32 number of its newest entry, 0 without one
entry   i32 key hash @0, i64 physical offset @4, i32 seconds since the file's begin @12,
        i32 number of the previous entry of the slot @16, 0 without one

Entry 0 is never used, so the count starts at 1.
`record_keys.pxd` has the keys of a record; slot = key hash % slots.
Invariants: an entry is whole before its slot refers to it; the header is kept in memory
and written by `save` only.
Crash contract: a file that was not full and flushed is built again.
One thread adds; concurrent readers see whole entries.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from rmq._fastpath.bytes.endian cimport get32, get64, put32, put64
from rmq._fastpath.bytes.prefetch cimport rmq_prefetch
from rmq._fastpath.log.decode cimport OK, RecordParts, RecordStatus, split_record
from rmq._fastpath.log.extent cimport Extent
from rmq._fastpath.log.layout cimport RecordFlag
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.new_keys cimport NewKey, NewKeys
from rmq._fastpath.log.record_keys cimport (
    RecordKeys, find_keys, key_hash_of, next_key, topic_hash_of,
)

from rmq._fastpath.log.decode import RecordStatus as Status

cdef extern from "<sched.h>" nogil:
    int sched_yield()

cdef enum:
    HEADER_SIZE = 40
    SLOT_SIZE = 4
    ENTRY_SIZE = 20
    HIT_LIMIT = 1024    # records of one result; more than any limit in use
    CHAIN_LIMIT = 1000000  # entries of one slot that a query reads
    YIELD_RECORDS = 128  # 0.1 ms if they are read from the log
    YIELD_NEW_KEYS = 2048  # 0.1 ms if only their entries are added
    TOGETHER = 8        # keys of a record whose slots are loaded at the same time


def index_file_size(int64_t slot_count, int64_t entry_limit):
    """Return the length of an index file."""
    return HEADER_SIZE + slot_count * SLOT_SIZE + entry_limit * ENTRY_SIZE


cdef bint has_key(
    const uint8_t *p, RecordParts *parts,
    const uint8_t *topic, int64_t topic_size,
    const uint8_t *key, int64_t size, bint is_tags,
) noexcept nogil:
    """True if an indexed record has the key."""
    cdef RecordKeys found
    cdef const uint8_t *own
    cdef int64_t own_size
    cdef bint own_is_tags
    if parts.topic_size != topic_size:
        return False
    if parts.sys_flag & RecordFlag.TRANSACTION_MASK == RecordFlag.TRANSACTION_ROLLBACK:
        return False
    if memcmp(p + parts.topic_at, topic, topic_size):
        return False
    find_keys(p + parts.properties_at, parts.properties_size, &found)
    while next_key(&found, &own, &own_size, &own_is_tags):
        if own_is_tags == is_tags and own_size == size:
            if memcmp(own, key, size) == 0:
                return True
    return False


def find_in_log(
    Extent log not None,
    int64_t position,
    int64_t end,
    bytes topic not None,
    bytes key not None,
    *,
    bint is_tags,
    int64_t begin_ms,
    int64_t end_ms,
    int64_t limit,
    bint only_first=False,
):
    """Return offsets of the last `limit` records with the key in [position, end).

    Oldest first; with `only_first` it reads the record at `position` alone. The scan
    runs without the GIL, takes a few nanoseconds per record, and ends at invalid bytes.
    """
    cdef int64_t hits[HIT_LIMIT]
    cdef int64_t count = 0, i
    cdef RecordParts parts
    cdef const uint8_t *p
    cdef const uint8_t *topic_at = topic
    cdef const uint8_t *key_at = key
    cdef int64_t topic_size = len(topic), size = len(key)
    log.check_range(position, end - position, log.size)
    limit = max(1, min(limit, <int64_t>HIT_LIMIT))
    log.holders += 1
    with nogil:
        while position < end:
            p = log.address + position
            if split_record(p, end - position, False, &parts) != OK:
                break
            if begin_ms <= parts.store_ms <= end_ms and has_key(
                p, &parts, topic_at, topic_size, key_at, size, is_tags
            ):
                hits[count % limit] = log.base_offset + position
                count += 1
            if only_first:
                break
            position += parts.size
    log.holders -= 1
    return [hits[i % limit] for i in range(max(0, count - limit), count)]


@cython.final
cdef class IndexFile:
    """Header, slots and entries of one mapped file. Known in Java as `IndexFile`."""

    cdef readonly MappedFile file
    cdef readonly int64_t slot_count
    cdef readonly int64_t entry_limit
    cdef readonly int64_t begin_ms
    cdef readonly int64_t end_ms
    cdef readonly int64_t begin_offset
    cdef readonly int64_t end_offset
    cdef readonly int64_t used_slots
    cdef readonly int64_t entry_count
    cdef int64_t entries_at

    def __cinit__(
        self, MappedFile file not None, int64_t slot_count, int64_t entry_limit
    ):
        size = index_file_size(slot_count, entry_limit)
        if file.size != size:
            raise ValueError(f"{file.path} has {file.size} bytes instead of {size}")
        self.file = file
        self.slot_count = slot_count
        self.entry_limit = entry_limit
        self.entries_at = HEADER_SIZE + slot_count * SLOT_SIZE
        self.entry_count = 1

    @property
    def is_full(self):
        """True if no entry fits any more."""
        return self.entry_count >= self.entry_limit

    @property
    def used_end(self):
        """Position after the last entry."""
        return self.entries_at + self.entry_count * ENTRY_SIZE

    def load(self):
        """Read the header of the file; ValueError if its values are inconsistent."""
        cdef const uint8_t *p = self.file.address
        self.file.check_range(0, HEADER_SIZE, self.file.size)
        self.begin_ms = get64(p)
        self.end_ms = get64(p + 8)
        self.begin_offset = get64(p + 16)
        self.end_offset = get64(p + 24)
        self.used_slots = <int32_t>get32(p + 32)
        self.entry_count = max(<int32_t>get32(p + 36), 1)
        if (
            self.entry_count > self.entry_limit
            or not 0 <= self.used_slots <= self.slot_count
            or not 0 <= self.begin_ms <= self.end_ms
            or not 0 <= self.begin_offset <= self.end_offset
        ):
            raise ValueError(f"{self.file.path}: its header cannot be true")

    def continue_from(self, IndexFile before not None):
        """Begin at the end of the previous, full file; the first entry sets the begin.
        """
        self.begin_ms = self.end_ms = before.end_ms
        self.begin_offset = self.end_offset = before.end_offset

    def save(self):
        """Write the header to the file."""
        cdef uint8_t header[HEADER_SIZE]
        put64(header, self.begin_ms)
        put64(header + 8, self.end_ms)
        put64(header + 16, self.begin_offset)
        put64(header + 24, self.end_offset)
        put32(header + 32, self.used_slots)
        put32(header + 36, self.entry_count)
        self.file.store(0, header, HEADER_SIZE)

    cdef uint8_t *slot_of(self, int32_t value) noexcept nogil:
        return self.file.address + HEADER_SIZE + (value % self.slot_count) * SLOT_SIZE

    cdef void add(
        self, int32_t value, int64_t offset, int64_t store_ms
    ) noexcept nogil:
        cdef uint8_t *slot
        cdef uint8_t *entry
        cdef int64_t before, seconds = 0
        slot = self.slot_of(value)
        entry = self.file.address + self.entries_at + self.entry_count * ENTRY_SIZE
        before = <int32_t>get32(slot)
        if before < 0 or before > self.entry_count:
            before = 0
        if self.begin_ms > 0:
            seconds = (store_ms - self.begin_ms) // 1000
            seconds = min(max(seconds, <int64_t>0), <int64_t>0x7FFFFFFF)
        put32(entry, value)
        put64(entry + 4, offset)
        put32(entry + 12, seconds)
        put32(entry + 16, before)
        put32(slot, self.entry_count)
        if self.entry_count <= 1:
            self.begin_offset = offset
            self.begin_ms = store_ms
        if before == 0:
            self.used_slots += 1
        self.entry_count += 1
        self.end_offset = offset
        self.end_ms = store_ms

    cdef bint add_keys(
        self, const uint8_t *p, const RecordParts *parts, int64_t room, int64_t *done
    ) noexcept nogil:
        """Add the keys of one record after the first `done`; False if the file is full.

        It prefetches the slots of several keys together.
        """
        cdef RecordKeys found
        cdef int32_t values[TOGETHER]
        cdef const uint8_t *key
        cdef int64_t size, number = 0, count = TOGETHER, i
        cdef bint is_tags
        cdef int32_t topic = topic_hash_of(p + parts.topic_at, parts.topic_size)
        find_keys(p + parts.properties_at, parts.properties_size, &found)
        while count == TOGETHER:
            count = 0
            while count < TOGETHER and next_key(&found, &key, &size, &is_tags):
                number += 1
                if number <= done[0]:
                    continue
                values[count] = key_hash_of(topic, key, size, is_tags)
                rmq_prefetch(self.slot_of(values[count]))
                count += 1
            for i in range(count):
                if self.entry_count >= room:
                    return False
                self.add(values[i], parts.physical_offset, parts.store_ms)
                done[0] += 1
        return True

    def add_records(
        self,
        Extent log not None,
        int64_t position,
        int64_t stop,
        int64_t end,
        int64_t done=0,
        bint gives_way=False,
    ):
        """Add the keys of the records that start in [position, stop).

        They end at or below `end`. The file has the first `done` keys of the first
        record already. With `gives_way` it yields the core every 0.1 ms, not after a
        slice of up to 4 ms. Returns (status, position, done). The status is OK at
        `stop`, or if this file is full or has no more blocks; BLANK at the end of the
        log file; else the bytes are no valid record.
        """
        cdef RecordParts parts
        cdef RecordStatus status = OK
        cdef const uint8_t *p
        cdef int64_t looked = 0
        cdef int64_t room = self.entry_limit
        cdef bint has_room = True
        log.check_range(position, end - position, log.size)
        self.file.check_write(0, self.entries_at, self.file.allocated)
        room = min(room, (self.file.allocated - self.entries_at) // ENTRY_SIZE)
        log.holders += 1
        self.file.holders += 1
        with nogil:
            while has_room and position < min(stop, end):
                looked += 1
                if gives_way and looked % YIELD_RECORDS == 0:
                    sched_yield()
                p = log.address + position
                status = split_record(p, end - position, False, &parts)
                if status != OK:
                    break
                if done == 0 and (
                    parts.physical_offset < self.end_offset
                    or parts.sys_flag & RecordFlag.TRANSACTION_MASK
                    == RecordFlag.TRANSACTION_ROLLBACK
                ):
                    position += parts.size
                    continue
                has_room = self.add_keys(p, &parts, room, &done)
                if has_room:
                    done = 0
                    position += parts.size
        self.file.holders -= 1
        log.holders -= 1
        return Status(status), position, done

    def add_new_keys(
        self,
        NewKeys keys not None,
        int64_t start,
        int64_t stop,
        int64_t end,
        int64_t done=0,
        bint gives_way=False,
    ):
        """Add the collected keys of the records that start in [start, stop).

        Like `add_records`, but it does not read the log; the records end at or below
        `end`. Returns (offset, done) of the first record whose keys are not all in the
        file.
        """
        cdef int64_t room = self.entry_limit
        cdef int64_t head = keys.produced_count()
        cdef int64_t at = keys.consumed, first = at, number = 0, following = 0
        cdef const NewKey *key
        cdef bint has_room = True, is_known = False
        self.file.check_write(0, self.entries_at, self.file.allocated)
        room = min(room, (self.file.allocated - self.entries_at) // ENTRY_SIZE)
        self.file.holders += 1
        with nogil:
            while at < head:
                key = keys.key_at(at)
                if key.size:        # a record begins
                    if key.offset >= stop or key.offset + key.size > end:
                        break
                    first = at
                    number = 0
                    is_known = key.offset < start or (
                        done == 0 and key.offset < self.end_offset
                    )
                    following = key.offset + key.size
                if gives_way and at % YIELD_NEW_KEYS == 0:
                    sched_yield()
                if at + TOGETHER < head:
                    rmq_prefetch(self.slot_of(keys.key_at(at + TOGETHER).value))
                number += 1
                if not is_known and number > done and key.value >= 0:
                    if self.entry_count >= room:
                        has_room = False
                        break
                    self.add(key.value, key.offset, key.store_ms)
                    done = number
                at += 1
                if at == head or keys.key_at(at).size:
                    start = max(start, following)
                    if not is_known:
                        done = 0
        self.file.holders -= 1
        keys.consume_until(at if has_room else first)
        return start, done

    def find(
        self,
        bytes topic not None,
        bytes key not None,
        *,
        bint is_tags,
        int64_t begin_ms,
        int64_t end_ms,
        int64_t limit=4096,
    ):
        """Return at most `limit` offsets that may have the key, newest first.

        The caller checks the records: other keys may have the same hash, and times have
        an error of up to two seconds.
        """
        cdef int32_t value = key_hash_of(
            topic_hash_of(topic, len(topic)), key, len(key), is_tags
        )
        cdef const uint8_t *entry
        cdef int64_t number, before, count = self.entry_count, time_ms, looked = 0
        cdef list offsets = []
        self.file.check_range(0, self.used_end, self.file.size)
        number = <int32_t>get32(
            self.file.address + HEADER_SIZE + (value % self.slot_count) * SLOT_SIZE
        )
        while 0 < number < count and looked < CHAIN_LIMIT:
            if len(offsets) >= limit:
                break
            entry = self.file.address + self.entries_at + number * ENTRY_SIZE
            # the first entry's seconds count from the begin of the file before
            time_ms = self.begin_ms
            if number > 1:
                time_ms += <int64_t><int32_t>get32(entry + 12) * 1000
            if <int32_t>get32(entry) == value:
                if begin_ms - 1000 <= time_ms <= end_ms:
                    offsets.append(<int64_t>get64(entry + 4))
            if time_ms + 1000 < begin_ms:
                break
            before = <int32_t>get32(entry + 16)
            if before >= number:
                break
            number = before
            looked += 1
        return offsets
