"""NameTable: a hash table from names to pointers, for handlers without Python.

Open addressing with FNV-1a.  A key is one or more names, each followed by a byte 0xFF,
which UTF-8 never contains: a look-up need not join them.
The table owns its slots only: its user keeps keys and values alive until `remove_name`.
It doubles before more than half of the slots are used, so that a search always ends at
a free slot.
A user with a limit removes `pick_victim` for each new name. Then most names are found
again in any order of access. If the oldest name were removed, a cycle of one name too
many would find none of them.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memset

cdef enum:
    NAME_END = 0xFF
    FIRST_SLOTS = 64
    SPREAD = 2654435769  # 2^32 divided by the golden ratio: its multiples lie far apart

cdef struct Name:
    const uint8_t *data
    int64_t size

cdef struct NameSlot:
    const uint8_t *key
    int64_t size
    uint32_t hash
    void *value                 # NULL: the slot is free

cdef struct NameTable:
    NameSlot *slots
    uint32_t mask               # number of slots, a power of two, minus one
    uint32_t count              # number of names
    uint32_t victim_count       # names that `pick_victim` has chosen so far


cdef inline bint contains_name(
    const Name *names, int32_t count, const Name *name
) noexcept nogil:
    """Return whether a short array has a name."""
    cdef int32_t i
    for i in range(count):
        if names[i].size == name.size and (
            memcmp(names[i].data, name.data, name.size) == 0
        ):
            return True
    return False


cdef inline bytes name_key(list names):
    """Join names to a key."""
    return b"".join([name.encode() + b"\xff" for name in names])


cdef inline int init_names(NameTable *table) except -1:
    """Allocate an empty table."""
    table.slots = <NameSlot *>calloc(FIRST_SLOTS, sizeof(NameSlot))
    if table.slots == NULL:
        raise MemoryError
    table.mask = FIRST_SLOTS - 1
    table.count = table.victim_count = 0
    return 0


cdef inline uint32_t hash_bytes(
    uint32_t value, const uint8_t *data, int64_t size
) noexcept nogil:
    cdef int64_t i
    for i in range(size):
        value = (value ^ data[i]) * 16777619
    return value


cdef inline bint is_key(
    const NameSlot *slot, const Name *names, int32_t count
) noexcept nogil:
    cdef const uint8_t *key = slot.key
    cdef int32_t i
    for i in range(count):
        if memcmp(key, names[i].data, names[i].size) != 0:
            return False
        key += names[i].size
        if key[0] != NAME_END:
            return False
        key += 1
    return True


cdef inline void *find_name(
    const NameTable *table, const Name *names, int32_t count
) noexcept nogil:
    """Return the value whose key has these names, or NULL."""
    cdef uint32_t hashed = 2166136261
    cdef uint32_t i
    cdef int64_t size = 0
    for i in range(<uint32_t>count):
        hashed = hash_bytes(hashed, names[i].data, names[i].size)
        hashed = (hashed ^ NAME_END) * 16777619
        size += names[i].size + 1
    i = hashed & table.mask
    while table.slots[i].value != NULL:
        if table.slots[i].hash == hashed and table.slots[i].size == size:
            if is_key(&table.slots[i], names, count):
                return table.slots[i].value
        i = (i + 1) & table.mask
    return NULL


cdef inline void insert_slot(NameTable *table, const NameSlot *slot) noexcept nogil:
    cdef uint32_t i = slot.hash & table.mask
    while table.slots[i].value != NULL:
        i = (i + 1) & table.mask
    table.slots[i] = slot[0]


cdef inline int grow_names(NameTable *table) except -1:
    """Double the slots."""
    cdef NameTable grown
    cdef uint32_t i
    grown.mask = 2 * table.mask + 1
    grown.slots = <NameSlot *>calloc(<size_t>grown.mask + 1, sizeof(NameSlot))
    if grown.slots == NULL:
        raise MemoryError
    for i in range(table.mask + 1):
        if table.slots[i].value != NULL:
            insert_slot(&grown, &table.slots[i])
    free(table.slots)
    table.slots, table.mask = grown.slots, grown.mask
    return 0


cdef inline int insert_name(NameTable *table, bytes key, void *value) except -1:
    """Add a value; its key must be new."""
    cdef NameSlot slot
    if 2 * table.count > table.mask:
        grow_names(table)
    slot.key = key
    slot.size = len(key)
    slot.hash = hash_bytes(2166136261, slot.key, slot.size)
    slot.value = value
    insert_slot(table, &slot)
    table.count += 1
    return 0


cdef inline void remove_name(NameTable *table, bytes key, void *value):
    """Remove a value and move the following ones up, so that searches still find them.
    """
    cdef uint32_t i = hash_bytes(2166136261, key, len(key)) & table.mask
    cdef NameSlot moved
    while table.slots[i].value != value:
        i = (i + 1) & table.mask
    table.slots[i].value = NULL
    table.count -= 1
    i = (i + 1) & table.mask
    while table.slots[i].value != NULL:
        moved = table.slots[i]
        table.slots[i].value = NULL
        insert_slot(table, &moved)
        i = (i + 1) & table.mask


cdef inline const NameSlot *pick_victim(NameTable *table) noexcept nogil:
    """Choose a name to evict; the table must not be empty."""
    cdef uint32_t i
    table.victim_count += 1
    i = <uint32_t>(table.victim_count * <uint32_t>SPREAD) & table.mask
    while table.slots[i].value == NULL:
        i = (i + 1) & table.mask
    return &table.slots[i]


cdef inline void clear_names(NameTable *table) noexcept nogil:
    table.count = 0
    memset(table.slots, 0, (<size_t>table.mask + 1) * sizeof(NameSlot))
