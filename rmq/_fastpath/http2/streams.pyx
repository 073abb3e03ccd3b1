"""StreamTable: the open streams of one connection, by id.

Ids of clients are odd and grow, so half of the id is a good hash. The table doubles
before it is half full, and halves when an eighth is used. `add_stream` and
`remove_stream` move other streams: pointers to streams are invalid after these calls.
The memory of the table, of the streams' buffers and of their metadata counts in the
budget of all buffers.
"""

from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from rmq._fastpath.reactor.buffers cimport MemoryBudget, release_buffer

cdef enum:
    FIRST_PLACES = 4


cdef inline uint32_t home_of(const StreamTable *table, uint32_t id) noexcept nogil:
    return (id >> 1) & table.mask


cdef Stream *find_stream(const StreamTable *table, uint32_t id) noexcept nogil:
    """Return the open stream of an id, or NULL."""
    cdef uint32_t i
    if table.count == 0:
        return NULL
    i = home_of(table, id)
    while table.places[i].id:
        if table.places[i].id == id:
            return &table.places[i]
        i = (i + 1) & table.mask
    return NULL


cdef bint resize_table(
    StreamTable *table, uint32_t places, MemoryBudget *budget
) noexcept nogil:
    """Move the streams to a table of `places`, a power of two."""
    cdef StreamTable moved
    cdef uint32_t i, j
    moved.places = <Stream *>calloc(places, sizeof(Stream))
    if moved.places == NULL:
        return False
    moved.mask = places - 1
    moved.count = table.count
    budget.used += places * sizeof(Stream)
    if table.places != NULL:
        budget.used -= (table.mask + 1) * sizeof(Stream)
        for i in range(table.mask + 1):
            if table.places[i].id:
                j = home_of(&moved, table.places[i].id)
                while moved.places[j].id:
                    j = (j + 1) & moved.mask
                moved.places[j] = table.places[i]
        free(table.places)
    table[0] = moved
    return True


cdef Stream *add_stream(
    StreamTable *table, uint32_t id, MemoryBudget *budget
) noexcept nogil:
    """Add a stream with zeros in all fields; NULL without memory for it."""
    cdef uint32_t i
    if table.places == NULL:
        if not resize_table(table, FIRST_PLACES, budget):
            return NULL
    elif 2 * (table.count + 1) > table.mask + 1:
        if budget.used > budget.limit:
            return NULL
        if not resize_table(table, 2 * (table.mask + 1), budget):
            return NULL
    i = home_of(table, id)
    while table.places[i].id:
        i = (i + 1) & table.mask
    table.places[i].id = id
    table.count += 1
    return &table.places[i]


cdef void remove_stream(
    StreamTable *table, Stream *stream, MemoryBudget *budget
) noexcept nogil:
    """Free a stream; other streams may move into its slot."""
    cdef uint32_t i, j, home
    free_stream(stream, budget)
    table.count -= 1
    i = j = <uint32_t>(stream - table.places)
    while True:
        j = (j + 1) & table.mask
        if not table.places[j].id:
            break
        home = home_of(table, table.places[j].id)
        if (j - home) & table.mask >= (j - i) & table.mask:
            table.places[i] = table.places[j]
            i = j
    memset(&table.places[i], 0, sizeof(Stream))
    if table.mask + 1 > FIRST_PLACES and 8 * table.count <= table.mask:
        resize_table(table, (table.mask + 1) // 2, budget)


cdef inline void free_stream(Stream *stream, MemoryBudget *budget) noexcept nogil:
    release_buffer(&stream.part, budget)
    release_buffer(&stream.late, budget)
    free_metadata(stream, budget)


cdef void free_metadata(Stream *stream, MemoryBudget *budget) noexcept nogil:
    """Free the metadata of a stream."""
    budget.used -= stream.metadata_size
    free(stream.metadata)
    stream.metadata = NULL
    stream.metadata_size = 0


cdef void free_streams(StreamTable *table, MemoryBudget *budget) noexcept nogil:
    """Free all streams and the table."""
    cdef uint32_t i
    if table.places == NULL:
        return
    for i in range(table.mask + 1):
        if table.places[i].id:
            free_stream(&table.places[i], budget)
    free(table.places)
    budget.used -= (table.mask + 1) * sizeof(Stream)
    table.places = NULL
    table.count = table.mask = 0
