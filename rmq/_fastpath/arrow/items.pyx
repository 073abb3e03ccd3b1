"""Columns to messages: Arrow buffers become the items of client batches.

The inverse of `columns`, in two passes.  `measure` checks each row and stores the size
of its item, or its fault.  `write` writes selected rows into the body of a request 320,
one after another, big-endian::

    i32 size of the item · i32 magic (0) · i32 CRC (0) · i32 flag
    i32 n · n bytes body · i16 m · m bytes properties

Properties are `name 0x01 value 0x02`, repeated: first the pairs of the row's map, then
the columns of properties in their order, then UNIQ_KEY.  A null or empty value is left
out.  A value of a column replaces a pair with its name.

If a row has no UNIQ_KEY of its own, it gets one from its position, in the form of
Java's ids. This id has 20 hexadecimal digits of the task, 8 of the row number >> 16,
and 4 of its low 16 bits.

Buffers of a column, as Arrow has them (a null address: all rows are valid)::

    number      validity bits, values
    text        validity bits, offsets, bytes
    map         validity bits, offsets, then a text of names and a text of values

Each column starts `first` elements after the start of its buffers.  The caller keeps
the buffers until the last `write`.
"""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING,
    PyBytes_FromStringAndSize,
    PyBytes_GET_SIZE,
)
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t, uintptr_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from rmq._fastpath.bytes.endian cimport put16, put32
from rmq._fastpath.bytes.utf8 cimport is_utf8
from rmq._fastpath.log.batch_items cimport (
    ITEM_FLAG_AT,
    ITEM_HEAD_SIZE,
    ITEM_LIMIT,
    ITEM_SIZE_LEAST,
)

from enum import IntEnum

cdef enum:
    PROPERTIES_LIMIT = 32_767
    NAME_LIMIT = 64             # maximum size of a known name
    TASK_DIGITS = 20
    KEY_DIGITS = 32
    NAME_END = 1
    PAIR_END = 2

cdef enum Fault:
    NO_BODY = -1
    LARGE_BODY = -2
    SEPARATOR = -3
    NOT_UTF8 = -4
    NO_NAME = -5
    RESERVED_NAME = -6
    LARGE_PROPERTIES = -7


RowFault = IntEnum(
    "RowFault",
    {
        "NO_BODY": NO_BODY,
        "LARGE_BODY": LARGE_BODY,
        "SEPARATOR": SEPARATOR,
        "NOT_UTF8": NOT_UTF8,
        "NO_NAME": NO_NAME,
        "RESERVED_NAME": RESERVED_NAME,
        "LARGE_PROPERTIES": LARGE_PROPERTIES,
    },
    module=__name__,
)


TextBuffers = tuple[int, int, int, int]
MapBuffers = tuple[int, int, int, TextBuffers, TextBuffers]

cdef struct Text:
    const uint8_t *at           # NULL: there is no text
    int64_t size

cdef struct TextColumn:
    int64_t first
    const uint8_t *validity
    const int32_t *offsets      # NULL: there is no such column
    const uint8_t *values

cdef struct NumberColumn:
    int64_t first
    const uint8_t *validity
    const int32_t *values

cdef struct MapColumn:
    int64_t first
    const uint8_t *validity
    const int32_t *offsets
    TextColumn names
    TextColumn values

cdef struct Named:
    const uint8_t *name
    int64_t name_size
    TextColumn column

cdef struct Known:
    int64_t size
    bint is_refused             # True: the row is refused; False: the pair is left out
    uint8_t name[NAME_LIMIT]


cdef inline bint is_valid(const uint8_t *bits, int64_t i) noexcept nogil:
    return bits == NULL or bits[i >> 3] >> (i & 7) & 1


cdef inline Text text_at(const TextColumn *column, int64_t i) noexcept nogil:
    cdef Text text
    text.at = NULL
    text.size = 0
    i += column.first
    if column.offsets != NULL and is_valid(column.validity, i):
        text.at = column.values + column.offsets[i]
        text.size = column.offsets[i + 1] - column.offsets[i]
    return text


cdef inline int fault_of(const Text *text) noexcept nogil:
    """Return 0 for a text that may be a name or value of a property, else its fault."""
    cdef int64_t i
    cdef uint8_t bits = 0
    cdef uint8_t separators = 0
    for i in range(text.size):
        bits |= text.at[i]
        separators |= (text.at[i] == NAME_END) | (text.at[i] == PAIR_END)
    if separators:
        return SEPARATOR
    if bits >= 0x80 and not is_utf8(text.at, text.size):
        return NOT_UTF8
    return 0


cdef inline uint8_t *put_bytes(
    uint8_t *p, const void *data, int64_t size
) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline uint8_t *put_pair(
    uint8_t *p, const uint8_t *name, int64_t name_size, const Text *value
) noexcept nogil:
    p = put_bytes(p, name, name_size)
    p[0] = NAME_END
    p = put_bytes(p + 1, value.at, value.size)
    p[0] = PAIR_END
    return p + 1


cdef inline uint8_t *put_row_key(
    uint8_t *p, const uint8_t *task, uint64_t row
) noexcept nogil:
    """Write the generated UNIQ_KEY of a row."""
    cdef const char *digits = b"0123456789ABCDEF"
    cdef int i
    p = put_bytes(p, b"UNIQ_KEY\x01", 9)
    p = put_bytes(p, task, TASK_DIGITS)
    for i in range(KEY_DIGITS - TASK_DIGITS):
        p[i] = digits[row >> (44 - 4 * i) & 15]
    p[KEY_DIGITS - TASK_DIGITS] = PAIR_END
    return p + KEY_DIGITS - TASK_DIGITS + 1


cdef TextColumn text_column(parts) except *:
    cdef TextColumn column
    first, validity, offsets, values = parts
    column.first = first
    column.validity = <const uint8_t *><uintptr_t>validity
    column.offsets = <const int32_t *><uintptr_t>offsets
    column.values = <const uint8_t *><uintptr_t>values
    return column


cdef void *resize_table(void *old, size_t size) except NULL:
    cdef void *new = realloc(old, size or 1)
    if new == NULL:
        raise MemoryError(f"no {size} bytes for a table of rows")
    return new


@cython.final
cdef class ItemWriter:
    """Encodes rows to items, batch by batch.

    `names` are the properties of the text columns.  `task` has 20 digits, from which
    rows get a UNIQ_KEY with their number.  `known` has names that a map may not have:
    True refuses the row, False drops the pair.
    """

    cdef Named *named
    cdef int64_t named_count
    cdef Known *known
    cdef int64_t known_count
    cdef int32_t *sizes         # size of each row's item, or the row's fault
    cdef int64_t row_count
    cdef int64_t first_row
    cdef int64_t body_limit
    cdef TextColumn body
    cdef NumberColumn flags
    cdef MapColumn pairs
    cdef int64_t own_key        # index of the column UNIQ_KEY, or -1
    cdef const uint8_t *task    # NULL: rows get no generated key
    cdef list pinned            # the names, and the bytes of the task

    def __cinit__(
        self,
        names not None,
        *,
        bytes task=None,
        known=None,
        int64_t body_limit=4 << 20,
    ):
        cdef int64_t i
        cdef bytes name
        if task is not None and len(task) != TASK_DIGITS:
            raise ValueError(f"a task has {TASK_DIGITS} digits, not {len(task)}")
        self.pinned = [list(names), task]
        self.task = NULL if task is None else <const uint8_t *>PyBytes_AS_STRING(task)
        self.body_limit = body_limit
        self.named_count = len(names)
        self.named = <Named *>resize_table(NULL, self.named_count * sizeof(Named))
        self.own_key = -1
        for i in range(self.named_count):
            name = self.pinned[0][i]
            if name == b"UNIQ_KEY":
                self.own_key = i
            self.named[i].name = <const uint8_t *>PyBytes_AS_STRING(name)
            self.named[i].name_size = PyBytes_GET_SIZE(name)
        known = known or {}
        self.known_count = len(known)
        self.known = <Known *>resize_table(NULL, self.known_count * sizeof(Known))
        for i, (name, is_refused) in enumerate(sorted(known.items())):
            if len(name) > NAME_LIMIT:
                raise ValueError(f"the name {name!r} is longer than {NAME_LIMIT}")
            self.known[i].size = PyBytes_GET_SIZE(name)
            self.known[i].is_refused = is_refused
            memcpy(self.known[i].name, PyBytes_AS_STRING(name), self.known[i].size)

    def __dealloc__(self):
        free(self.named)
        free(self.known)
        free(self.sizes)

    def measure(self, int64_t rows, *, body not None, texts, flags=None, pairs=None,
                int64_t first_row=0):
        """Check rows; returns (row, fault) of those that cannot be sent."""
        cdef int64_t i
        if len(texts) != self.named_count:
            raise ValueError(f"{len(texts)} columns, not {self.named_count}")
        self.sizes = <int32_t *>resize_table(self.sizes, rows * sizeof(int32_t))
        self.row_count = rows
        self.first_row = first_row
        self.body = text_column(body)
        for i in range(self.named_count):
            self.named[i].column = text_column(texts[i])
        self._take_flags(flags)
        self._take_pairs(pairs)
        with nogil:
            for i in range(rows):
                self.sizes[i] = self._size_of(i)
        return [
            (i, RowFault(self.sizes[i])) for i in range(rows) if self.sizes[i] < 0
        ]

    cdef int _take_flags(self, flags) except -1:
        memset(&self.flags, 0, sizeof(NumberColumn))
        if flags is not None:
            first, validity, values = flags
            self.flags.first = first
            self.flags.validity = <const uint8_t *><uintptr_t>validity
            self.flags.values = <const int32_t *><uintptr_t>values
        return 0

    cdef int _take_pairs(self, pairs) except -1:
        memset(&self.pairs, 0, sizeof(MapColumn))
        if pairs is not None:
            first, validity, offsets, names, values = pairs
            self.pairs.first = first
            self.pairs.validity = <const uint8_t *><uintptr_t>validity
            self.pairs.offsets = <const int32_t *><uintptr_t>offsets
            self.pairs.names = text_column(names)
            self.pairs.values = text_column(values)
        return 0

    cdef int32_t _size_of(self, int64_t i) noexcept nogil:
        """Return the size of the item of a row, or its fault."""
        cdef Text body = text_at(&self.body, i)
        cdef Text value
        cdef int64_t k, size = 0
        cdef int fault
        if body.size == 0:  # brokers refuse an empty body
            return NO_BODY
        if body.size > self.body_limit:
            return LARGE_BODY
        for k in range(self.named_count):
            value = text_at(&self.named[k].column, i)
            if value.size:
                fault = fault_of(&value)
                if fault:
                    return fault
                size += self.named[k].name_size + value.size + 2
        if self._needs_key(i):
            size += 9 + KEY_DIGITS + 1
        if self.pairs.offsets != NULL:
            fault = self._add_pairs(i, &size)
            if fault:
                return fault
        if size > PROPERTIES_LIMIT:
            return LARGE_PROPERTIES
        return <int32_t>(ITEM_SIZE_LEAST + body.size + size)

    cdef bint _needs_key(self, int64_t i) noexcept nogil:
        """Return whether the row gets a generated key."""
        if self.task == NULL:
            return False
        if self.own_key < 0:
            return True
        return text_at(&self.named[self.own_key].column, i).size == 0

    cdef int _add_pairs(self, int64_t i, int64_t *size) noexcept nogil:
        """Add the size of the pairs of a map to `size`; returns 0, or a fault."""
        cdef Text name, value
        cdef int64_t at, known
        cdef int fault
        i += self.pairs.first
        if not is_valid(self.pairs.validity, i):
            return 0
        for at in range(self.pairs.offsets[i], self.pairs.offsets[i + 1]):
            value = text_at(&self.pairs.values, at)
            if value.size == 0:
                continue
            name = text_at(&self.pairs.names, at)
            if name.size == 0:
                return NO_NAME
            fault = fault_of(&name) or fault_of(&value)
            if fault:
                return fault
            known = self._find_known(&name)
            if known >= 0 and self.known[known].is_refused:
                return RESERVED_NAME
            if known < 0 and not self._has_column(&name, i - self.pairs.first):
                size[0] += name.size + value.size + 2
        return 0

    cdef int64_t _find_known(self, const Text *name) noexcept nogil:
        """Return the index of a known name; -1 for other names."""
        cdef int64_t k
        for k in range(self.known_count):
            if self.known[k].size == name.size and (
                memcmp(self.known[k].name, name.at, name.size) == 0
            ):
                return k
        return -1

    cdef bint _has_column(self, const Text *name, int64_t i) noexcept nogil:
        """Return whether a column has a value with this name for the row."""
        cdef int64_t k
        for k in range(self.named_count):
            if self.named[k].name_size == name.size and (
                memcmp(self.named[k].name, name.at, name.size) == 0
            ):
                return text_at(&self.named[k].column, i).size > 0
        return False

    def write(self, uintptr_t order, int64_t start, int64_t end, int64_t limit):
        """Return a body of good rows from `start` on, and the index after its last row.

        `order` is the address of a u64 array of row numbers; 0: rows in their order.
        The body ends before `end`, and before `limit` bytes unless one row is larger.
        ValueError for a row with a fault.
        """
        cdef const uint64_t *rows = <const uint64_t *>order
        cdef int64_t at, size = 0, stop = start
        cdef bytes body
        cdef uint8_t *p
        if not 0 <= start < end <= self.row_count:
            raise ValueError(f"rows {start} to {end} of {self.row_count}")
        while stop < end and stop - start < ITEM_LIMIT:
            at = self._good_row(rows, stop)
            if stop > start and size + self.sizes[at] > limit:
                break
            size += self.sizes[at]
            stop += 1
        body = PyBytes_FromStringAndSize(NULL, size)
        p = <uint8_t *>PyBytes_AS_STRING(body)
        with nogil:
            for at in range(start, stop):
                p = self._put_item(p, rows[at] if rows != NULL else at)
        return body, stop

    cdef int64_t _good_row(self, const uint64_t *rows, int64_t at) except -1:
        """Return the number of a row; ValueError for a row with a fault."""
        cdef uint64_t row = at if rows == NULL else rows[at]
        if row >= <uint64_t>self.row_count or self.sizes[row] < 0:
            raise ValueError(f"row {row} cannot be sent")
        return <int64_t>row

    cdef uint8_t *_put_item(self, uint8_t *p, int64_t i) noexcept nogil:
        cdef Text body = text_at(&self.body, i)
        cdef int64_t flag = self.flags.first + i
        memset(p, 0, ITEM_HEAD_SIZE)
        put32(p, self.sizes[i])
        if self.flags.values != NULL and is_valid(self.flags.validity, flag):
            put32(p + ITEM_FLAG_AT, self.flags.values[flag])
        put32(p + ITEM_HEAD_SIZE - 4, <int32_t>body.size)
        p = put_bytes(p + ITEM_HEAD_SIZE, body.at, body.size)
        put16(p, <unsigned short>(self.sizes[i] - ITEM_SIZE_LEAST - body.size))
        return self._put_properties(p + 2, i)

    cdef uint8_t *_put_properties(self, uint8_t *p, int64_t i) noexcept nogil:
        cdef Text name, value
        cdef int64_t at, k, place = self.pairs.first + i
        if self.pairs.offsets != NULL and is_valid(self.pairs.validity, place):
            for at in range(self.pairs.offsets[place], self.pairs.offsets[place + 1]):
                name = text_at(&self.pairs.names, at)
                value = text_at(&self.pairs.values, at)
                if value.size and self._find_known(&name) < 0 and (
                    not self._has_column(&name, i)
                ):
                    p = put_pair(p, name.at, name.size, &value)
        for k in range(self.named_count):
            value = text_at(&self.named[k].column, i)
            if value.size:
                p = put_pair(p, self.named[k].name, self.named[k].name_size, &value)
        if self._needs_key(i):
            p = put_row_key(p, self.task, <uint64_t>(self.first_row + i))
        return p
