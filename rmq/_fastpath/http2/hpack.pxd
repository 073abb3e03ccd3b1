from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t

from rmq._fastpath.http2.header_names cimport HeaderName

cdef enum:
    DEFAULT_TABLE_SIZE = 4096   # bytes, until SETTINGS change it
    ENTRY_OVERHEAD = 32         # that HPACK counts for each entry
    BLOCK_LIMIT = 32 * 1024     # bytes of one header block

cdef struct Span:
    const uint8_t *data
    int64_t size

cdef struct Header:             # valid while it is visited
    HeaderName id
    Span name
    Span value

cdef struct Entry:
    uint32_t start              # of its name in `text`; the value follows
    uint16_t name_size
    uint16_t value_size
    HeaderName id

cdef struct HeaderTable:        # the dynamic table of one direction
    uint32_t announced          # the largest limit that the peer may set
    uint32_t limit              # bytes as HPACK counts them
    uint32_t used
    uint32_t count              # entries
    uint32_t newest             # number of the entry with index 62
    uint32_t write              # where the next text starts
    uint32_t capacity           # the limit that the memory was taken for; 0: no memory
    uint32_t mask               # of numbers: places in `entries` - 1
    uint8_t *text               # twice the capacity: a text never wraps
    Entry *entries              # a ring

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
