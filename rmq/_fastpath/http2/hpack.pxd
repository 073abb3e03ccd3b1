from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from rmq._fastpath.http2.header_names cimport HeaderName

cdef enum:
    DEFAULT_TABLE_SIZE = 4096   # size in bytes until SETTINGS change it
    ENTRY_OVERHEAD = 32         # bytes that HPACK adds for each entry
    BLOCK_LIMIT = 32 * 1024     # maximum bytes of one header block

cdef struct Span:
    const uint8_t *data
    int64_t size

cdef struct Header:             # valid while it is visited
    HeaderName id
    Span name
    Span value

cdef struct Entry:
    uint32_t start              # position of its name in `text`; the value follows
    uint16_t name_size
    uint16_t value_size
    HeaderName id

cdef struct HeaderTable:        # the dynamic table of one direction
    uint32_t announced          # the largest limit that the peer may set
    uint32_t limit              # maximum size in bytes, as HPACK counts them
    uint32_t used
    uint32_t count              # number of entries
    uint32_t newest             # number of the entry with index 62
    uint32_t write              # position of the next text
    uint32_t capacity           # bytes for which memory was allocated; 0: no memory
    uint32_t mask               # number of places in `entries`, minus one
    uint8_t *text               # twice the capacity: a text never wraps
    Entry *entries              # ring of entries

ctypedef void (*Visitor)(void *context, const Header *header) noexcept nogil

cdef void init_table(HeaderTable *table) noexcept nogil
cdef void free_table(HeaderTable *table) noexcept nogil
cdef int64_t table_memory(const HeaderTable *table) noexcept nogil
cdef int decode_block(
    HeaderTable *table,
    const uint8_t *p,
    int64_t size,
    Visitor visit,
    void *context,
) noexcept nogil
