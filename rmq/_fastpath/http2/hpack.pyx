"""HPACK: header blocks to names and values (RFC 7541).

A block is a row of fields. Their first bits are their kind:

    1iiiiiii                    name and value of an index
    01iiiiii  [name] value      new entry; the name is that of an index, or a text for 0
    001lllll                    new limit of the table, before all fields
    0000iiii, 0001iiii          as a new entry, without the entry

A text is its length, with 0x80 for a Huffman code, and its bytes. Numbers that do not
fit in their bits continue in bytes of 7 bits, the lowest first.
Index 1 to 61 is the static table, 62 the newest entry of the dynamic one. Entries have
their texts in a ring of twice the capacity, which grows with the entries up to the
limit. An entry knows the number of its name, so an index needs no comparison.

Invariant: the decoded texts of one header fit in SCRATCH, as a block has at most
BLOCK_LIMIT bytes. The GIL is the lock of SCRATCH; nothing here touches a Python object,
except `HeaderDecoder` for tests.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset
from cpython.bytes cimport PyBytes_FromStringAndSize

from rmq._fastpath.http2.header_names cimport (
    BAD_NAME, STATIC_COUNT, STATIC_TABLE, check_name, is_value,
)
from rmq._fastpath.http2.huffman cimport decode_huffman

cdef enum:
    COMPRESSION_ERROR = 9       # error code of HTTP/2
    INTERNAL_ERROR = 2
    FIRST_CAPACITY = 512        # bytes of entries for which memory is allocated first
    NUMBER_SHIFT_LIMIT = 21     # a number has at most 28 bits after its prefix
    SCRATCH_SIZE = BLOCK_LIMIT * 8 // 5 + DEFAULT_TABLE_SIZE + 64

cdef uint8_t[SCRATCH_SIZE] SCRATCH

cdef struct Cursor:             # position in a block
    const uint8_t *p
    const uint8_t *end
    uint8_t *scratch            # position of the next decoded text


# -- the dynamic table

cdef void init_table(HeaderTable *table) noexcept nogil:
    """Begin an empty table with the default limit."""
    memset(table, 0, sizeof(HeaderTable))
    table.announced = table.limit = DEFAULT_TABLE_SIZE


cdef void free_table(HeaderTable *table) noexcept nogil:
    """Drop all entries and free the memory."""
    free(table.text)
    free(table.entries)
    table.text = NULL
    table.entries = NULL
    table.capacity = table.used = table.count = table.write = 0


cdef inline uint32_t ring_size(uint32_t capacity) noexcept nogil:
    """Return how many entries a table of this limit may have, as a power of two."""
    cdef uint32_t size = 1
    while size * ENTRY_OVERHEAD <= capacity:
        size *= 2
    return size


cdef int64_t table_memory(const HeaderTable *table) noexcept nogil:
    """Return the bytes that a table has allocated."""
    if table.capacity == 0:
        return 0
    return 2 * <int64_t>table.capacity + (table.mask + 1) * sizeof(Entry)


cdef inline Entry *entry_at(const HeaderTable *table, uint32_t number) noexcept nogil:
    return &table.entries[number & table.mask]


cdef void evict_entries(HeaderTable *table, uint32_t limit) noexcept nogil:
    """Evict the oldest entries until the others have at most `limit` bytes."""
    cdef Entry *oldest
    while table.used > limit:
        oldest = entry_at(table, table.newest - table.count + 1)
        table.used -= ENTRY_OVERHEAD + oldest.name_size + oldest.value_size
        table.count -= 1


cdef bint grow_capacity(HeaderTable *table, uint32_t needed) noexcept nogil:
    """Allocate memory for `needed` bytes of entries, and move the entries to it."""
    cdef HeaderTable grown = table[0]
    cdef Entry *entry
    cdef Entry *copy
    cdef uint32_t i, size
    cdef uint32_t capacity = max(2 * table.capacity, <uint32_t>FIRST_CAPACITY)
    while capacity < needed:
        capacity *= 2
    capacity = min(capacity, table.limit)
    grown.text = <uint8_t *>malloc(2 * capacity)
    grown.entries = <Entry *>malloc(ring_size(capacity) * sizeof(Entry))
    if grown.text == NULL or grown.entries == NULL:
        free(grown.text)
        free(grown.entries)
        return False
    grown.capacity = capacity
    grown.mask = ring_size(capacity) - 1
    grown.write = 0
    for i in range(table.count):
        entry = entry_at(table, table.newest - table.count + 1 + i)
        copy = entry_at(&grown, table.newest - table.count + 1 + i)
        copy[0] = entry[0]
        copy.start = grown.write
        size = entry.name_size + entry.value_size
        memcpy(grown.text + grown.write, table.text + entry.start, size)
        grown.write += size
    free(table.text)
    free(table.entries)
    table[0] = grown
    return True


cdef bint insert_entry(HeaderTable *table, const Header *header) noexcept nogil:
    """Insert the newest entry; False without memory.

    A header that is larger than the table empties it. Its texts are not in the table.
    """
    cdef Entry *entry
    cdef int64_t size = header.name.size + header.value.size
    cdef uint32_t needed
    if size + ENTRY_OVERHEAD > table.limit:
        evict_entries(table, 0)
        return True
    evict_entries(table, table.limit - <uint32_t>size - ENTRY_OVERHEAD)
    needed = table.used + <uint32_t>size + ENTRY_OVERHEAD
    if needed > table.capacity and not grow_capacity(table, needed):
        return False
    if table.write + size > 2 * table.capacity:
        table.write = 0
    table.newest += 1
    entry = entry_at(table, table.newest)
    entry.start = table.write
    entry.name_size = header.name.size
    entry.value_size = header.value.size
    entry.id = header.id
    memcpy(table.text + table.write, header.name.data, header.name.size)
    table.write += <uint32_t>header.name.size
    memcpy(table.text + table.write, header.value.data, header.value.size)
    table.write += <uint32_t>header.value.size
    table.count += 1
    table.used = needed
    return True


cdef bint find_header(
    const HeaderTable *table, uint32_t index, Header *header
) noexcept nogil:
    """Find the header of an index; False if there is none."""
    cdef Entry *entry
    if index == 0:
        return False
    if index <= STATIC_COUNT:
        header.id = STATIC_TABLE[index].id
        header.name.data = STATIC_TABLE[index].name
        header.name.size = STATIC_TABLE[index].name_size
        header.value.data = STATIC_TABLE[index].value
        header.value.size = STATIC_TABLE[index].value_size
        return True
    index -= STATIC_COUNT + 1
    if index >= table.count:
        return False
    entry = entry_at(table, table.newest - index)
    header.id = entry.id
    header.name.data = table.text + entry.start
    header.name.size = entry.name_size
    header.value.data = header.name.data + entry.name_size
    header.value.size = entry.value_size
    return True


# -- header blocks

cdef inline bint read_number(Cursor *at, int bits, uint32_t *value) noexcept nogil:
    """Read a number whose first byte has `bits` bits of it."""
    cdef uint32_t mask = (1 << bits) - 1
    cdef int shift = 0
    cdef uint8_t byte
    if at.p >= at.end:
        return False
    value[0] = at.p[0] & mask
    at.p += 1
    if value[0] < mask:
        return True
    while True:
        if at.p >= at.end or shift > NUMBER_SHIFT_LIMIT:
            return False
        byte = at.p[0]
        at.p += 1
        value[0] += <uint32_t>(byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return True


cdef inline bint read_text(Cursor *at, Span *text) noexcept nogil:
    """Read a text; a coded text is decoded into the scratch memory."""
    cdef uint32_t size
    cdef bint is_coded = at.p < at.end and at.p[0] & 0x80 != 0
    if not read_number(at, 7, &size) or size > at.end - at.p:
        return False
    text.data = at.p
    text.size = size
    at.p += size
    if is_coded:
        text.data = at.scratch
        text.size = decode_huffman(at.p - size, size, at.scratch)
        if text.size < 0:
            return False
        at.scratch += text.size
    return True


cdef inline bint read_literal(
    HeaderTable *table, Cursor *at, Header *header, bint is_inserted
) noexcept nogil:
    """Read a header with a value of its own; False if it breaks the rules of HPACK."""
    cdef uint32_t index
    at.scratch = SCRATCH
    if not read_number(at, 6 if is_inserted else 4, &index):
        return False
    if index == 0:
        if not read_text(at, &header.name):
            return False
        header.id = check_name(header.name.data, header.name.size)
    else:
        if not find_header(table, index, header):
            return False
        if is_inserted and index > STATIC_COUNT:
            # the new entry may evict this entry
            memcpy(at.scratch, header.name.data, header.name.size)
            header.name.data = at.scratch
            at.scratch += header.name.size
    if not read_text(at, &header.value):
        return False
    if not is_value(header.value.data, header.value.size):
        header.id = BAD_NAME
    return True


cdef bint change_limit(HeaderTable *table, Cursor *at) noexcept nogil:
    """Read a new limit of the table; False if it is more than announced.

    A peer that ignores the announcement may set the default: h2spec does.
    """
    cdef uint32_t limit
    if not read_number(at, 5, &limit):
        return False
    if limit > table.announced and limit != DEFAULT_TABLE_SIZE:
        return False
    table.limit = limit
    evict_entries(table, limit)
    if table.count == 0 and limit < table.capacity:
        free_table(table)
    return True


cdef int decode_block(
    HeaderTable *table,
    const uint8_t *p,
    int64_t size,
    Visitor visit,
    void *context,
) noexcept nogil:
    """Call `visit` for each header of a block; return 0, or an error code of HTTP/2.

    A block with an error leaves the table in an unknown state: the connection must end.
    """
    cdef Header header
    cdef Cursor at
    cdef uint32_t index
    cdef uint8_t first
    cdef bint may_change = True, is_inserted
    if size > BLOCK_LIMIT:
        return COMPRESSION_ERROR
    at.p, at.end = p, p + size
    while at.p < at.end:
        first = at.p[0]
        if first & 0xE0 == 0x20:
            if not may_change or not change_limit(table, &at):
                return COMPRESSION_ERROR
            continue
        may_change = False
        if first & 0x80:
            if not read_number(&at, 7, &index):
                return COMPRESSION_ERROR
            if not find_header(table, index, &header):
                return COMPRESSION_ERROR
        else:
            is_inserted = first & 0x40 != 0
            if not read_literal(table, &at, &header, is_inserted):
                return COMPRESSION_ERROR
            if is_inserted and not insert_entry(table, &header):
                return INTERNAL_ERROR
        visit(context, &header)
    return 0


# -- for tests

cdef void append_header(void *context, const Header *header) noexcept nogil:
    with gil:
        (<list>context).append((
            PyBytes_FromStringAndSize(<const char *>header.name.data, header.name.size),
            PyBytes_FromStringAndSize(
                <const char *>header.value.data, header.value.size
            ),
            <int>header.id,
        ))


@cython.final
cdef class HeaderDecoder:
    """The header blocks of one peer, for tests and benchmarks."""

    cdef HeaderTable table

    def __cinit__(self, int announced=DEFAULT_TABLE_SIZE):
        """`announced` is the SETTINGS_HEADER_TABLE_SIZE that the peer knows."""
        init_table(&self.table)
        self.table.announced = announced

    def __dealloc__(self):
        free_table(&self.table)

    def decode(self, bytes block not None):
        """Return [(name, value, number of the name)]; ValueError for a broken block."""
        cdef list headers = []
        cdef int error = decode_block(
            &self.table, block, len(block), append_header, <void *>headers
        )
        if error:
            raise ValueError(f"header block with error {error}")
        return headers

    @property
    def used_size(self):
        """Bytes of the table, as HPACK counts them."""
        return self.table.used

    @property
    def count(self):
        """Entries of the table."""
        return self.table.count
