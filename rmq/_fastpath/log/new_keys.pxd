from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.log.decode cimport RecordParts

cdef struct NewKey:             # 24 bytes
    int64_t offset              # offset of the record in the log
    int64_t store_ms
    int32_t size                # size of the record; 0 if this is not its first key
    int32_t value               # hash of the key, below 0 if the record has none

cdef class NewKeys:
    cdef NewKey *keys
    cdef readonly int64_t capacity
    cdef int64_t produced       # atomic
    cdef int64_t consumed       # atomic
    cdef int64_t end            # end of the keys, atomic; -1: no keys were collected
    cdef void collect_records(
        self, const uint8_t *records, int64_t size, int64_t offset
    ) noexcept nogil
    cdef bint collect_record(
        self,
        const uint8_t *record,
        const RecordParts *parts,
        int64_t offset,
        bint is_indexed,
    ) noexcept nogil
    cdef int64_t produced_count(self) noexcept nogil
    cdef const NewKey *key_at(self, int64_t number) noexcept nogil
    cdef void consume_until(self, int64_t number) noexcept nogil
