"""OnceTable: where the messages of the last minutes are, by topic and UNIQ_KEY.

A ring has an entry of 24 bytes for each message, in the order of storing. Slots find
the newest entry of a hash:

entry   u64 hash of topic and key @0, i64 physical offset @8, i64 store ms @16
slot    u32: place in the ring + 1 in the low bits, a tag of the hash above; 0: free
line    16 slots, which the processor loads together; a hash has a home line

An entry's slot is in its home line, or after it if all lines between are full. Then one
line of memory is enough for almost every message, and the ring is read in its order.

A full table removes its oldest entry for each new one. The hash depends on random
numbers of the process, so clients cannot choose keys that collide. A hit is only a
hint: the caller compares topic and key with the record, because the log may have been
truncated. Belongs to the thread of the reactor.
"""

import os

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, qsort
from libc.string cimport memchr, memcmp, memcpy

from rmq._fastpath.bytes.endian cimport get64
from rmq._fastpath.bytes.prefetch cimport rmq_prefetch
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.layout cimport QueueEntryLayout
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.record_keys cimport RecordKeys, find_keys

cdef extern from *:
    """
    #include <stdint.h>
    /* Both halves of the product: each bit of the inputs changes half of the result. */
    static inline uint64_t rmq_mix(uint64_t a, uint64_t b) {
        __uint128_t product = (__uint128_t)a * b;
        return (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    /* A bit for each slot of a line that has a value under a mask; without branches. */
    static inline uint32_t rmq_equal_slots(
            const uint32_t *line, uint32_t mask, uint32_t value) {
        static const uint32_t bits[16] = {
            1, 2, 4, 8, 1 << 4, 1 << 5, 1 << 6, 1 << 7, 1 << 8, 1 << 9, 1 << 10,
            1 << 11, 1 << 12, 1 << 13, 1 << 14, 1 << 15};
        uint32_t found = 0;
        for (int i = 0; i < 16; i++) found |= (line[i] & mask) == value ? bits[i] : 0;
        return found;
    }
    """
    uint64_t rmq_mix(uint64_t a, uint64_t b) noexcept nogil
    uint32_t equal_slots "rmq_equal_slots"(
        const uint32_t *line, uint32_t mask, uint32_t value
    ) noexcept nogil
    int first_bit "__builtin_ctz"(uint32_t bits) noexcept nogil

cdef extern from "<sys/mman.h>" nogil:
    int PROT_READ, PROT_WRITE, MAP_PRIVATE, MAP_ANONYMOUS, MADV_HUGEPAGE
    void *MAP_FAILED
    void *mmap(void *at, size_t size, int protection, int flags, int fd, int64_t start)
    int munmap(void *at, size_t size)
    int madvise(void *at, size_t size, int advice)

cdef enum:
    SLOTS_SHARE = 4         # a quarter of the memory
    LINE_SLOTS = 16         # slots of 4 bytes in a line of the processor's cache
    ALL_BITS = 0xFFFFFFFF
    LEAST_BYTES = 4096
    PREFETCH_DISTANCE = 8   # removals before an entry's, its slots are loaded
    RING_DISTANCE = 32      # and the entry before that
    HUGE_PAGE = 1 << 21

cdef const char *REAL_TOPIC = b"REAL_TOPIC\x01"


@cython.final
cdef class OnceTable:
    """Entries of stored messages, in `memory_bytes` and a free entry."""

    def __cinit__(self, int64_t memory_bytes):
        cdef int64_t slot_count = LINE_SLOTS
        if not LEAST_BYTES <= memory_bytes <= <int64_t>1 << 34:
            raise ValueError(f"a table of {memory_bytes} bytes")
        while slot_count * 2 * sizeof(uint32_t) <= memory_bytes // SLOTS_SHARE:
            slot_count *= 2
        self.line_mask = slot_count // LINE_SLOTS - 1
        self.capacity = min(
            slot_count * 5 // 8,
            (memory_bytes - slot_count * <int64_t>sizeof(uint32_t))
            // <int64_t>sizeof(OnceEntry),
        )
        while self.place_mask <= self.capacity:     # places from 0, each plus 1
            self.place_mask = 2 * self.place_mask + 1
        self.map_memory(
            slot_count * <int64_t>sizeof(uint32_t),
            (self.capacity + 1) * <int64_t>sizeof(OnceEntry),
        )
        seed = os.urandom(sizeof(self.seeds))
        memcpy(self.seeds, <const uint8_t *>seed, sizeof(self.seeds))

    def __dealloc__(self):
        if self.memory_size:
            munmap(self.memory, self.memory_size)

    cdef int map_memory(self, int64_t slots_size, int64_t ring_size) except -1:
        """Map memory for slots and ring; the system gives pages at their first use.

        Slots are read in random order. In small pages each look-up would also miss the
        processor's table of pages.
        """
        cdef int64_t size = slots_size + ring_size + HUGE_PAGE
        cdef void *memory = mmap(
            NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
        )
        if memory == MAP_FAILED:
            raise MemoryError
        self.memory, self.memory_size = memory, size
        self.slots = <uint32_t *>(
            (<uint64_t>memory + HUGE_PAGE - 1) & ~<uint64_t>(HUGE_PAGE - 1)
        )
        self.ring = <OnceEntry *>(<uint8_t *>self.slots + slots_size)
        if slots_size >= HUGE_PAGE:
            madvise(self.slots, slots_size, MADV_HUGEPAGE)
        return 0

    @property
    def oldest_ms(self):
        """Store time of the oldest entry of a full table; 0 while there is room."""
        if self.count < self.capacity:
            return 0
        return self.ring[(self.next_place + 1) % (self.capacity + 1)].store_ms

    def find(self, bytes topic not None, bytes key not None, int64_t since_ms):
        """Return the physical offset of a message stored at or after a time, or -1."""
        cdef uint64_t key_hash = self.hash_of(topic, len(topic), key, len(key))
        cdef uint32_t value = self.find_slot(key_hash)[0]
        cdef OnceEntry *entry
        if value == 0:
            return -1
        entry = self.entry_of(value)
        return entry.physical_offset if entry.store_ms >= since_ms else -1

    def add(
        self, bytes topic not None, bytes key not None, int64_t physical_offset,
        int64_t store_ms,
    ):
        """Add a stored message."""
        cdef uint64_t key_hash = self.hash_of(topic, len(topic), key, len(key))
        self.put_entry(
            self.find_slot(key_hash), key_hash, physical_offset, store_ms
        )

    def load(
        self, LogReader reader not None, list blocks not None, set topics not None,
        int64_t since_ms,
    ):
        """Add the newest messages of topics to an empty table, from queue entries.

        `blocks` are bytes of entries, 20 bytes each, in any order; `topics` are names
        in UTF-8. A delayed or half message belongs to the topic in its property
        REAL_TOPIC. The first record of a key stays: later ones are its deliveries. The
        store's thread reads the records in place.
        """
        cdef int64_t count = 0, i, at, first = self.capacity
        cdef int64_t *offsets
        cdef bytes block
        if self.count:
            raise ValueError(f"the table has {self.count} keys")
        for block in blocks:
            count += len(block) // QueueEntryLayout.ENTRY_SIZE
        offsets = <int64_t *>malloc(max(<int64_t>1, count) * sizeof(int64_t))
        if offsets == NULL:
            raise MemoryError
        try:
            at = 0
            for block in blocks:
                for i in range(len(block) // QueueEntryLayout.ENTRY_SIZE):
                    offsets[at] = <int64_t>get64(
                        <const uint8_t *>block + i * QueueEntryLayout.ENTRY_SIZE
                        + QueueEntryLayout.ENTRY_OFFSET_AT
                    )
                    at += 1
            qsort(offsets, count, sizeof(int64_t), compare_offsets)
            while count and first:
                count -= 1
                if self.read_entry(
                    reader, offsets[count], topics, since_ms, &self.ring[first - 1]
                ):
                    first -= 1
        finally:
            free(offsets)
        self.add_entries(first)

    cdef bint read_entry(
        self, LogReader reader, int64_t offset, set topics, int64_t since_ms,
        OnceEntry *entry,
    ) except -1:
        """Make the entry of a record; False if it is not stored for one of the topics,
        or earlier than the time.
        """
        cdef MappedFile file
        cdef void *found = reader.file_at(offset)
        cdef const uint8_t *p
        cdef const uint8_t *topic
        cdef int64_t topic_size, end
        cdef RecordParts parts
        cdef RecordKeys keys
        if found == NULL:
            return False
        file = <MappedFile>found
        end = file.base_offset + file._write_position
        p = reader.address_of(offset)
        if split_record(p, end - offset, False, &parts) != OK:
            return False
        if parts.physical_offset != offset or parts.store_ms < since_ms:
            return False
        find_keys(p + parts.properties_at, parts.properties_size, &keys)
        if not keys.unique_size:
            return False
        topic, topic_size = p + parts.topic_at, parts.topic_size
        if topic[:topic_size] not in topics:
            topic = find_real_topic(
                p + parts.properties_at, parts.properties_size, &topic_size
            )
            if topic == NULL or topic[:topic_size] not in topics:
                return False
        entry.key_hash = self.hash_of(topic, topic_size, keys.unique, keys.unique_size)
        entry.physical_offset = offset
        entry.store_ms = parts.store_ms
        return True

    cdef void add_entries(self, int64_t first) noexcept nogil:
        """Add the entries that are in the ring from a place on; a known key stays.

        The table is empty, so an entry is read before its place is used again.
        """
        cdef OnceEntry entry
        cdef int64_t i
        for i in range(first, self.capacity):
            if i + PREFETCH_DISTANCE < self.capacity:
                self.prefetch(self.ring[i + PREFETCH_DISTANCE].key_hash)
            entry = self.ring[i]
            self.add_new(entry.key_hash, entry.physical_offset, entry.store_ms, 0)

    cdef uint64_t hash_topic(self, const uint8_t *topic, int64_t size) noexcept nogil:
        """Return the hash with which the hashes of a topic's keys begin."""
        return hash_bytes(self.seeds[0], self.seeds[1], topic, size)

    cdef uint64_t hash_of(
        self, const uint8_t *topic, int64_t topic_size,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil:
        """Return the hash of a topic and a key."""
        return hash_bytes(
            self.hash_topic(topic, topic_size), self.seeds[1], key, key_size
        )

    cdef uint64_t load_key(
        self, uint64_t topic_hash, const uint8_t *key, int64_t size
    ) noexcept nogil:
        """Return the hash of a key, and begin to load its line into the cache."""
        cdef uint64_t key_hash = hash_bytes(topic_hash, self.seeds[1], key, size)
        self.prefetch(key_hash)
        return key_hash

    cdef void prefetch(self, uint64_t key_hash) noexcept nogil:
        rmq_prefetch(self.line_of(key_hash))

    cdef uint32_t *line_of(self, uint64_t number) noexcept nogil:
        """Return the home line of a hash; also a line by its number."""
        return &self.slots[(number & self.line_mask) * LINE_SLOTS]

    cdef OnceEntry *entry_of(self, uint32_t value) noexcept nogil:
        """Return the entry of a slot that is not free."""
        return &self.ring[(value & self.place_mask) - 1]

    cdef uint32_t *find_slot(self, uint64_t key_hash) noexcept nogil:
        """Return the slot of a hash, or the free one where its search ends."""
        cdef uint32_t tag = <uint32_t>(key_hash >> 32) & ~self.place_mask
        cdef uint32_t equal, unused
        cdef uint64_t number = key_hash
        cdef uint32_t *line
        cdef uint32_t *slot
        while True:
            line = self.line_of(number)
            unused = equal_slots(line, ALL_BITS, 0)
            equal = equal_slots(line, ~self.place_mask, tag) & ~unused
            while equal:
                slot = &line[first_bit(equal)]
                if self.entry_of(slot[0]).key_hash == key_hash:
                    return slot
                equal &= equal - 1
            if unused:
                return &line[first_bit(unused)]
            number += 1

    cdef bint add_new(
        self, uint64_t key_hash, int64_t physical_offset, int64_t store_ms,
        int64_t since_ms,
    ) noexcept nogil:
        """Add an entry; False if the table has the hash, stored at or after a time."""
        cdef uint32_t *slot = self.find_slot(key_hash)
        if slot[0] and self.entry_of(slot[0]).store_ms >= since_ms:
            return False
        self.put_entry(slot, key_hash, physical_offset, store_ms)
        return True

    cdef void put_entry(
        self, uint32_t *slot, uint64_t key_hash, int64_t physical_offset,
        int64_t store_ms,
    ) noexcept nogil:
        """Add an entry, and set its hash's slot; the newest entry of a hash is found.
        """
        cdef OnceEntry *entry = &self.ring[self.next_place]
        entry.key_hash = key_hash
        entry.physical_offset = physical_offset
        entry.store_ms = store_ms
        self.next_place += 1
        slot[0] = (
            <uint32_t>(key_hash >> 32) & ~self.place_mask | <uint32_t>self.next_place
        )
        if self.next_place > self.capacity:
            self.next_place = 0
        if self.count == self.capacity:
            self.remove_oldest()
        else:
            self.count += 1

    cdef void remove_oldest(self) noexcept nogil:
        """Empty the slot of the entry at the next place."""
        cdef int64_t ahead = self.next_place + PREFETCH_DISTANCE
        cdef uint64_t number = self.ring[self.next_place].key_hash
        cdef uint32_t *line
        cdef uint32_t equal, unused
        rmq_prefetch(&self.ring[self.next_place + RING_DISTANCE])
        if ahead <= self.capacity:
            self.prefetch(self.ring[ahead].key_hash)
        while True:
            line = self.line_of(number)
            unused = equal_slots(line, ALL_BITS, 0)
            equal = equal_slots(
                line, self.place_mask, <uint32_t>(self.next_place + 1)
            )
            if equal:
                break
            if unused:
                return          # a newer entry has the same hash
            number += 1
        line[first_bit(equal)] = 0
        if not unused:
            self.fill_hole(&line[first_bit(equal)], number)

    cdef void fill_hole(self, uint32_t *hole, uint64_t number) noexcept nogil:
        """Move a slot from after a line that was full into its free slot.

        A search for the moved one would end there. The move may leave the same problem.
        """
        cdef uint64_t later = number, home
        cdef uint32_t *line
        cdef bint is_full = True
        cdef int i
        while is_full:
            later += 1
            line = self.line_of(later)
            is_full = equal_slots(line, ALL_BITS, 0) == 0
            for i in range(LINE_SLOTS):
                rmq_prefetch(self.entry_of(line[i]))    # all at once
            for i in range(LINE_SLOTS):
                if line[i] == 0:
                    continue
                home = self.entry_of(line[i]).key_hash
                if (later - home) & self.line_mask >= (later - number) & self.line_mask:
                    hole[0], line[i] = line[i], 0
                    hole, number = &line[i], later
                    break


cdef uint64_t hash_bytes(
    uint64_t state, uint64_t seed, const uint8_t *p, int64_t size
) noexcept nogil:
    """Continue a hash with bytes and their number, 16 bytes in one step."""
    cdef uint64_t words[2]
    cdef int64_t left = size
    while left > 16:
        memcpy(words, p, 16)
        state = rmq_mix(words[0] ^ seed, words[1] ^ state)
        p += 16
        left -= 16
    if size >= 16:
        memcpy(words, p + left - 16, 16)    # some bytes again, instead of zeros
    else:
        words[0] = words[1] = 0
        memcpy(words, p, left)
    return rmq_mix(words[0] ^ ~seed ^ <uint64_t>size, words[1] ^ state)


cdef int compare_offsets(const void *a, const void *b) noexcept nogil:
    cdef int64_t one = (<const int64_t *>a)[0], other = (<const int64_t *>b)[0]
    return (one > other) - (one < other)


cdef const uint8_t *find_real_topic(
    const uint8_t *p, int64_t size, int64_t *found_size
) noexcept nogil:
    """Find the topic to which a half or delayed message was sent; NULL without it."""
    cdef const uint8_t *end = p + size
    cdef const uint8_t *stop
    while p < end:
        stop = <const uint8_t *>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        if stop - p > 11 and memcmp(p, REAL_TOPIC, 11) == 0:
            found_size[0] = stop - p - 11
            return p + 11
        p = stop + 1
    return NULL
