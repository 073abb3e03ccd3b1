"""NewKeys: hashes of keys of the last records, from the appending thread to the index.

At the append a record is in the processor's cache. To read the record again from the
log would cost the index more than the rest of its work. With a tail ring the record may
be on the disk only.
Positions only grow: [consumed, produced) wait for the index. They cover all records
from the first key's record to `end`. A record without room in the table ends the range.
The table starts again after the last key was consumed; the index reads the records
between the two ranges from the log. One thread appends and collects. At most one thread
at a time consumes. `end` is stored after the keys.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from rmq._fastpath.log.decode cimport BLANK, OK, RecordParts, RecordStatus, split_record
from rmq._fastpath.log.layout cimport RecordFlag
from rmq._fastpath.log.record_keys cimport (
    RecordKeys, find_keys, key_hash_of, next_key, topic_hash_of,
)

cdef extern from *:
    """
    #include <stdint.h>
    static inline int64_t rmq_keys_load(const int64_t *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static inline void rmq_keys_store(int64_t *p, int64_t value) {
        __atomic_store_n(p, value, __ATOMIC_RELEASE);
    }
    """
    int64_t rmq_keys_load(const int64_t *p) noexcept nogil
    void rmq_keys_store(int64_t *p, int64_t value) noexcept nogil


@cython.final
cdef class NewKeys:
    """The keys of one log that wait for their entries."""

    def __cinit__(self, int64_t capacity=1 << 18):
        """`capacity` is a power of two; each used key takes 24 bytes."""
        if capacity <= 0 or capacity & (capacity - 1):
            raise ValueError(f"{capacity} is no power of two")
        self.capacity = capacity
        self.end = -1
        self.keys = <NewKey *>calloc(capacity, sizeof(NewKey))
        if self.keys == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.keys)

    # -- the thread that appends

    cdef void collect_records(
        self, const uint8_t *records, int64_t size, int64_t offset
    ) noexcept nogil:
        """Collect the keys of whole records that the log has at `offset`."""
        cdef RecordParts parts
        cdef RecordStatus status
        cdef int64_t at = 0
        if self.end != offset and rmq_keys_load(&self.consumed) != self.produced:
            return
        while at < size:
            status = split_record(records + at, size - at, False, &parts)
            if status != OK and status != BLANK:
                break
            if not self.collect_record(
                records + at, &parts, offset + at, status == OK and (
                    parts.sys_flag & RecordFlag.TRANSACTION_MASK
                    != RecordFlag.TRANSACTION_ROLLBACK
                )
            ):
                break
            at += parts.size
        rmq_keys_store(&self.end, offset + at)

    cdef bint collect_record(
        self,
        const uint8_t *record,
        const RecordParts *parts,
        int64_t offset,
        bint is_indexed,
    ) noexcept nogil:
        """Add the keys of one record, or one mark if it has no key; False if full."""
        cdef RecordKeys found
        cdef NewKey *place
        cdef const uint8_t *text
        cdef int64_t size, put = self.produced
        cdef int64_t limit = rmq_keys_load(&self.consumed) + self.capacity
        cdef int32_t topic = 0
        cdef bint is_tags, has_key = False
        if is_indexed:
            topic = topic_hash_of(record + parts.topic_at, parts.topic_size)
            find_keys(record + parts.properties_at, parts.properties_size, &found)
            has_key = next_key(&found, &text, &size, &is_tags)
        while True:
            if put == limit:
                return False
            place = self.keys + (put & (self.capacity - 1))
            place.offset = offset
            place.store_ms = parts.store_ms if is_indexed else 0
            place.size = <int32_t>parts.size if put == self.produced else 0
            place.value = -1
            put += 1
            if has_key:
                place.value = key_hash_of(topic, text, size, is_tags)
                has_key = next_key(&found, &text, &size, &is_tags)
            if not has_key:
                break
        rmq_keys_store(&self.produced, put)
        return True

    # -- the thread that consumes

    def contains(self, int64_t offset):
        """True if the keys of the records from `offset` on are here."""
        cdef int64_t end = rmq_keys_load(&self.end)
        return len(self) > 0 and self.key_at(self.consumed).offset <= offset < end

    def discard_before(self, int64_t offset):
        """Discard records before `offset`; return the offset of the next record, or
        None.
        """
        cdef int64_t produced = self.produced_count()
        cdef int64_t consumed = self.consumed
        while consumed < produced and self.key_at(consumed).offset < offset:
            consumed += 1
        self.consume_until(consumed)
        return self.key_at(consumed).offset if consumed < produced else None

    def __len__(self):
        """Number of keys; a record without keys counts as one."""
        return rmq_keys_load(&self.produced) - rmq_keys_load(&self.consumed)

    def clear(self):
        """Discard all keys; no thread may append or consume meanwhile."""
        self.consumed = self.produced
        self.end = -1

    cdef int64_t produced_count(self) noexcept nogil:
        return rmq_keys_load(&self.produced)

    cdef const NewKey *key_at(self, int64_t number) noexcept nogil:
        return self.keys + (number & (self.capacity - 1))

    cdef void consume_until(self, int64_t number) noexcept nogil:
        rmq_keys_store(&self.consumed, number)
