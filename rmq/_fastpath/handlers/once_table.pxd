from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.log.log_reader cimport LogReader

cdef struct OnceEntry:          # a message that was stored
    uint64_t key_hash           # hash of topic and UNIQ_KEY
    int64_t physical_offset
    int64_t store_ms

cdef class OnceTable:
    cdef readonly int64_t capacity      # maximum number of entries
    cdef readonly int64_t count
    cdef OnceEntry *ring  # entries in the order in which the messages were stored
    cdef int64_t next_place             # place of the next entry in the ring
    cdef uint32_t *slots  # each slot has a tag of the hash, and a place in the ring + 1
    cdef uint64_t line_mask             # number of lines of slots - 1
    cdef uint32_t place_mask            # bits of a slot that hold the place
    cdef uint64_t seeds[2]
    cdef void *memory                   # memory of slots and ring
    cdef int64_t memory_size
    cdef int map_memory(self, int64_t slots_size, int64_t ring_size) except -1
    cdef uint64_t hash_topic(self, const uint8_t *topic, int64_t size) noexcept nogil
    cdef uint64_t load_key(
        self, uint64_t topic_hash, const uint8_t *key, int64_t size
    ) noexcept nogil
    cdef bint add_new(
        self, uint64_t key_hash, int64_t physical_offset, int64_t store_ms,
        int64_t since_ms,
    ) noexcept nogil
    cdef uint64_t hash_of(
        self, const uint8_t *topic, int64_t topic_size,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil
    cdef void prefetch(self, uint64_t key_hash) noexcept nogil
    cdef uint32_t *line_of(self, uint64_t number) noexcept nogil
    cdef OnceEntry *entry_of(self, uint32_t value) noexcept nogil
    cdef uint32_t *find_slot(self, uint64_t key_hash) noexcept nogil
    cdef void put_entry(
        self, uint32_t *slot, uint64_t key_hash, int64_t physical_offset,
        int64_t store_ms,
    ) noexcept nogil
    cdef void remove_oldest(self) noexcept nogil
    cdef void fill_hole(self, uint32_t *hole, uint64_t number) noexcept nogil
    cdef bint read_entry(
        self, LogReader reader, int64_t offset, set topics, int64_t since_ms,
        OnceEntry *entry,
    ) except -1
    cdef void add_entries(self, int64_t first) noexcept nogil
