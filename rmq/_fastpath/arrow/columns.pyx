# tidy: long — one leaf for each kind of column, two passes, and the batches of both
"""Records to columns: a range of log bytes becomes buffers in the layout of Arrow.

Two passes. `measure` checks records, decompresses bodies, unpacks inner batches, and
stores where the parts of each row are. The caller allocates buffers of the returned
sizes, and `fill` writes them. Neither creates a Python object per message. They need
Python for a compressed body, for a text that is not UTF-8, and for a topic that is not
in the cache.

Buffers of a column, in this order (all sizes in bytes, offsets i32, bits LSB first)::

    number      values
    text        offsets, bytes
    text, null  validity bits, offsets, bytes
    map         offsets, name offsets, name bytes, value offsets, value bytes

Properties as in Java: if a name occurs twice, the last value wins.  A pair without name
or value is skipped.  The last separator may be missing.  Times are in microseconds,
clamped to the range of i64.  An item of an inner batch has its own flag, body,
properties and queue offset; its other columns come from the record.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport (
    INT64_MAX,
    INT64_MIN,
    int16_t,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
    uint64_t,
    uintptr_t,
)
from libc.stdlib cimport free, realloc
from libc.string cimport memcmp, memcpy, memset

from rmq._fastpath.bytes.endian cimport get16, get32, get64
from rmq._fastpath.bytes.utf8 cimport is_utf8
from rmq._fastpath.log.decode cimport (
    BAD_LENGTHS,
    BAD_OFFSET,
    BLANK,
    END,
    OK,
    RecordParts,
    RecordStatus,
    split_record,
)
from rmq._fastpath.log.layout cimport RecordFlag, RecordLayout

from typing import NamedTuple

from rmq._fastpath.log.decode import RecordStatus as Status

cdef extern from "arpa/inet.h" nogil:
    const char *inet_ntop(int family, const void *src, char *text, unsigned int size)

cdef extern from "sys/socket.h" nogil:
    enum:
        AF_INET6

cdef extern from * nogil:
    int trailing_zeros "__builtin_ctzll"(uint64_t value)

cdef enum:
    BLOCK = 256             # rows filled column by column while they are in the cache
    TOPIC_SLOTS = 256       # topics whose selection is cached
    TOPIC_SLOT_SIZE = 255   # maximum size of a cached name
    HOST_LIMIT = 60         # 46 of an IPv6 address, colon, 11 of a port
    ID_LIMIT = 56           # hexadecimal of 20 bytes host and 8 bytes offset
    COMPRESSED = 0x1
    INNER_BATCH = 0x80
    ITEM_HEAD_SIZE = 20
    ITEMS_TOPIC_LIMIT = 1 << 26     # each item repeats the topic, which may be long
    CHAIN = 3               # number of records that must follow a found record
    PAIR_LIMIT = 8192       # pairs of 4 bytes in the longest properties
    FIRST_ROWS = 4096
    UNOPENED_LIMIT = 16     # maximum number of reasons about bodies in one batch

cdef const uint64_t EACH_BYTE = 0x0101010101010101

cdef enum Kind:
    QUEUE_ID
    FLAG
    SYS_FLAG
    BODY_CRC
    RECONSUME_TIMES
    STORE_SIZE
    LAST_I32
    QUEUE_OFFSET
    PHYSICAL_OFFSET
    PREPARED_OFFSET
    BORN_TIME
    STORE_TIME
    LAST_I64
    TAGS
    KEYS
    LAST_NULL
    TOPIC
    BODY
    PROPERTIES_TEXT
    MESSAGE_ID
    OFFSET_ID
    BORN_HOST
    STORE_HOST
    LAST_TEXT
    PROPERTIES

COLUMNS = {
    "queueId": QUEUE_ID,
    "flag": FLAG,
    "sysFlag": SYS_FLAG,
    "bodyCrc": BODY_CRC,
    "reconsumeTimes": RECONSUME_TIMES,
    "storeSize": STORE_SIZE,
    "queueOffset": QUEUE_OFFSET,
    "physicalOffset": PHYSICAL_OFFSET,
    "preparedTransactionOffset": PREPARED_OFFSET,
    "bornTimestamp": BORN_TIME,
    "storeTimestamp": STORE_TIME,
    "tags": TAGS,
    "keys": KEYS,
    "topic": TOPIC,
    "body": BODY,
    "propertiesText": PROPERTIES_TEXT,
    "msgId": MESSAGE_ID,
    "offsetMsgId": OFFSET_ID,
    "bornHost": BORN_HOST,
    "storeHost": STORE_HOST,
    "properties": PROPERTIES,
}

cdef struct Text:
    const uint8_t *at       # NULL: there is no text
    int64_t size

cdef struct Row:
    const uint8_t *record
    int64_t queue_offset
    int32_t record_size
    int32_t sys_flag
    int32_t flag
    int32_t pairs           # upper bound: also counts repeated names
    Text topic
    Text body
    Text properties
    Text tags
    Text keys
    Text unique

cdef struct Column:
    int kind
    uint8_t *validity
    int32_t *offsets
    uint8_t *values         # text, numbers or property values
    int64_t used
    int64_t nulls
    int32_t *name_offsets
    int32_t *value_offsets
    uint8_t *names
    int64_t names_used
    int64_t pairs

cdef struct TopicSlot:
    uint8_t size            # 0: empty
    uint8_t is_wanted
    uint8_t name[TOPIC_SLOT_SIZE]


cdef inline bint is_text(const uint8_t *p, int64_t size) noexcept nogil:
    """Return whether bytes are UTF-8, without overlong forms and surrogates."""
    cdef int64_t i
    cdef uint8_t bits = 0
    for i in range(size):
        bits |= p[i]
    return bits < 0x80 or is_utf8(p, size)


cdef inline int64_t find_byte(
    const uint8_t *p, int64_t at, int64_t size, uint8_t one, uint8_t other
) noexcept nogil:
    """Index of the first of two bytes at or after `at`, scanning 8 bytes per step;
    `size` if absent.
    """
    cdef uint64_t eight, a, b
    while size - at >= 8:
        memcpy(&eight, p + at, 8)
        a = eight ^ (one * EACH_BYTE)
        b = eight ^ (other * EACH_BYTE)
        # the lowest bit set is exact: borrows go from lower bytes to higher ones
        a = ((a - EACH_BYTE) & ~a | (b - EACH_BYTE) & ~b) & (EACH_BYTE << 7)
        if a:
            return at + (trailing_zeros(a) >> 3)
        at += 8
    while at < size and p[at] != one and p[at] != other:
        at += 1
    return at


cdef inline int64_t next_pair(
    const uint8_t *p, int64_t size, int64_t at, Text *name, Text *value
) noexcept nogil:
    """Read the pair at or after `at`; returns the index after it, -1 at the end."""
    cdef int64_t end, split
    while at < size:
        split = find_byte(p, at, size, 1, 2)
        end = find_byte(p, split, size, 2, 2)
        if at < split < end - 1:
            name.at = p + at
            name.size = split - at
            value.at = p + split + 1
            value.size = end - split - 1
            return end + 1
        at = end + 1
    return -1


cdef inline void read_properties(Row *row) noexcept nogil:
    """Find the properties that have their own column, and count the pairs."""
    cdef int64_t at = 0
    cdef Text name, value
    while True:
        at = next_pair(row.properties.at, row.properties.size, at, &name, &value)
        if at < 0:
            return
        row.pairs += 1
        if name.size == 4:
            if memcmp(name.at, b"TAGS", 4) == 0:
                row.tags = value
            elif memcmp(name.at, b"KEYS", 4) == 0:
                row.keys = value
        elif name.size == 8 and memcmp(name.at, b"UNIQ_KEY", 8) == 0:
            row.unique = value


cdef inline int64_t to_micros(uint64_t ms) noexcept nogil:
    cdef int64_t signed = <int64_t>ms
    return min(max(signed, -INT64_MAX // 1000), INT64_MAX // 1000) * 1000


cdef inline int64_t store_host_at(Row *row) noexcept nogil:
    cdef int64_t at = RecordLayout.BORN_HOST_AT + RecordLayout.HOST_SIZE_V4 + 8
    return at + 12 if row.sys_flag & RecordFlag.BORN_HOST_V6 else at


cdef inline int64_t after_hosts(Row *row) noexcept nogil:
    cdef int64_t at = store_host_at(row) + RecordLayout.HOST_SIZE_V4
    return at + 12 if row.sys_flag & RecordFlag.STORE_HOST_V6 else at


cdef inline int64_t number_of(int kind, Row *row) noexcept nogil:
    cdef const uint8_t *p = row.record
    if kind == QUEUE_ID:
        return <int32_t>get32(p + RecordLayout.QUEUE_ID_AT)
    if kind == FLAG:
        return row.flag
    if kind == SYS_FLAG:
        return row.sys_flag
    if kind == BODY_CRC:
        return <int32_t>get32(p + RecordLayout.BODY_CRC_AT)
    if kind == RECONSUME_TIMES:
        return <int32_t>get32(p + after_hosts(row))
    if kind == STORE_SIZE:
        return row.record_size
    if kind == QUEUE_OFFSET:
        return row.queue_offset
    if kind == PHYSICAL_OFFSET:
        return <int64_t>get64(p + RecordLayout.PHYSICAL_OFFSET_AT)
    if kind == PREPARED_OFFSET:
        return <int64_t>get64(p + after_hosts(row) + 4)
    if kind == BORN_TIME:
        return to_micros(get64(p + RecordLayout.BORN_MS_AT))
    return to_micros(get64(p + store_host_at(row) - 8))


cdef int write_number(uint8_t *out, int64_t value) noexcept nogil:
    """Write a decimal number; returns the number of characters."""
    cdef uint8_t digits[20]
    cdef int count = 0, written = 0
    if value < 0:
        out[0] = c"-"
        written = 1
        value = -value
    while True:
        digits[count] = <uint8_t>(c"0" + value % 10)
        count += 1
        value //= 10
        if value == 0:
            break
    while count:
        count -= 1
        out[written] = digits[count]
        written += 1
    return written


cdef int write_host(const uint8_t *host, bint is_v6, uint8_t *out) noexcept nogil:
    """Write `ip:port`; returns the number of characters, at most HOST_LIMIT."""
    cdef int i, size = 0
    if is_v6:
        inet_ntop(AF_INET6, host, <char *>out, HOST_LIMIT)
        while out[size]:
            size += 1
        host += 16
    else:
        for i in range(4):
            if i:
                out[size] = c"."
                size += 1
            size += write_number(out + size, host[i])
        host += 4
    out[size] = c":"
    return size + 1 + write_number(out + size + 1, <int32_t>get32(host))


cdef inline void write_hex(const uint8_t *p, int size, uint8_t *out) noexcept nogil:
    cdef int i
    cdef const char *digits = b"0123456789ABCDEF"
    for i in range(size):
        out[2 * i] = digits[p[i] >> 4]
        out[2 * i + 1] = digits[p[i] & 15]


cdef int write_offset_id(Row *row, uint8_t *out) noexcept nogil:
    """Write the offset message id; returns its size, at most ID_LIMIT."""
    cdef int host_size = RecordLayout.HOST_SIZE_V4
    if row.sys_flag & RecordFlag.STORE_HOST_V6:
        host_size = RecordLayout.HOST_SIZE_V6
    write_hex(row.record + store_host_at(row), host_size, out)
    write_hex(row.record + RecordLayout.PHYSICAL_OFFSET_AT, 8, out + 2 * host_size)
    return 2 * (host_size + 8)


cdef void fill_numbers(
    Column *column, Row *rows, int64_t first, int64_t last
) noexcept nogil:
    cdef int64_t i
    cdef int kind = column.kind
    cdef uint8_t *out = column.values
    if kind < LAST_I32:
        for i in range(first, last):
            (<int32_t *>out)[i] = <int32_t>number_of(kind, rows + i)
    else:
        for i in range(first, last):
            (<int64_t *>out)[i] = number_of(kind, rows + i)


cdef inline Text stored_text(int kind, Row *row) noexcept nogil:
    """Return the text of a column, in the record or in a decompressed body."""
    if kind == TOPIC:
        return row.topic
    if kind == BODY:
        return row.body
    if kind == PROPERTIES_TEXT:
        return row.properties
    if kind == TAGS:
        return row.tags
    if kind == KEYS:
        return row.keys
    return row.unique


cdef void fill_texts(
    Column *column, Row *rows, int64_t first, int64_t last
) noexcept nogil:
    cdef int64_t i, used = column.used
    cdef int kind = column.kind
    cdef uint8_t *values = column.values
    cdef int32_t *offsets = column.offsets
    cdef Text text
    for i in range(first, last):
        text = stored_text(kind, rows + i)
        if text.at != NULL:
            memcpy(values + used, text.at, text.size)
            used += text.size
        elif kind == MESSAGE_ID:
            used += write_offset_id(rows + i, values + used)
        elif column.validity != NULL:
            column.validity[i >> 3] &= ~(1 << (i & 7))
            column.nulls += 1
        offsets[i + 1] = <int32_t>used
    column.used = used


cdef void fill_written(
    Column *column, Row *rows, int64_t first, int64_t last
) noexcept nogil:
    """Format hosts and ids, which are binary in the record."""
    cdef int64_t i, host_at
    cdef bint is_v6
    cdef uint8_t *out
    cdef Row *row
    cdef uint8_t host[HOST_LIMIT]
    cdef int host_size = 0
    cdef uint64_t packed, last_packed = 0
    for i in range(first, last):
        row = rows + i
        out = column.values + column.used
        if column.kind == OFFSET_ID:
            column.used += write_offset_id(row, out)
        else:
            if column.kind == BORN_HOST:
                host_at = RecordLayout.BORN_HOST_AT
                is_v6 = row.sys_flag & RecordFlag.BORN_HOST_V6 != 0
            else:
                host_at = store_host_at(row)
                is_v6 = row.sys_flag & RecordFlag.STORE_HOST_V6 != 0
            packed = get64(row.record + host_at)
            if is_v6 or host_size == 0 or packed != last_packed:
                host_size = write_host(row.record + host_at, is_v6, host)
            memcpy(out, host, host_size)
            column.used += host_size
            last_packed = packed
            if is_v6:
                host_size = 0
        column.offsets[i + 1] = <int32_t>column.used


cdef void fill_maps(
    Column *column, Row *rows, int64_t first, int64_t last, Text *pairs
) noexcept nogil:
    """Fill a map column; `pairs` is scratch space for the pairs of one row."""
    cdef int64_t i, at, count, k
    for i in range(first, last):
        at = count = 0
        while True:
            at = next_pair(
                rows[i].properties.at, rows[i].properties.size, at,
                pairs + 2 * count, pairs + 2 * count + 1,
            )
            if at < 0:
                break
            count += 1
        for k in range(count):
            if not is_repeated(pairs, k, count):
                put_pair(column, pairs[2 * k], pairs[2 * k + 1])
        column.offsets[i + 1] = <int32_t>column.pairs


cdef inline bint is_repeated(Text *pairs, int64_t k, int64_t count) noexcept nogil:
    """Return whether a later pair has the name of pair `k`."""
    cdef int64_t size = pairs[2 * k].size, other
    for other in range(k + 1, count):
        if pairs[2 * other].size == size and (
            memcmp(pairs[2 * other].at, pairs[2 * k].at, size) == 0
        ):
            return True
    return False


cdef inline void put_pair(Column *column, Text name, Text value) noexcept nogil:
    memcpy(column.names + column.names_used, name.at, name.size)
    memcpy(column.values + column.used, value.at, value.size)
    column.names_used += name.size
    column.used += value.size
    column.pairs += 1
    column.name_offsets[column.pairs] = <int32_t>column.names_used
    column.value_offsets[column.pairs] = <int32_t>column.used


cdef int64_t item_at(const uint8_t *p, int64_t size, Row *row) noexcept nogil:
    """Read flag, body and properties of an item; returns its size, -1 if invalid."""
    cdef int64_t body_size, properties_size
    if size < ITEM_HEAD_SIZE + 2:
        return -1
    body_size = <int32_t>get32(p + 16)
    if body_size < 0 or body_size > size - ITEM_HEAD_SIZE - 2:
        return -1
    properties_size = <int16_t>get16(p + ITEM_HEAD_SIZE + body_size)
    if properties_size < 0 or (
        ITEM_HEAD_SIZE + body_size + 2 + properties_size != <int32_t>get32(p)
    ) or <int32_t>get32(p) > size:
        return -1
    row.flag = <int32_t>get32(p + 12)
    row.body.at = p + ITEM_HEAD_SIZE
    row.body.size = body_size
    row.properties.at = p + ITEM_HEAD_SIZE + body_size + 2
    row.properties.size = properties_size
    return <int32_t>get32(p)


class Measured(NamedTuple):
    """Outcome of `ColumnReader.measure`."""

    status: RecordStatus
    position: int
    records: int
    rows: int
    sizes: list[tuple[int, ...]]
    reason: str
    unopened: list[str]


class Walked(NamedTuple):
    """Result of `walk_chain`. Without records `least_ms` is above `greatest_ms`."""

    status: RecordStatus
    position: int
    records: int
    least_ms: int
    greatest_ms: int


@cython.final
cdef class ColumnReader:
    """Decodes log bytes to the selected columns, batch by batch.

    `wants_topic` selects topics; its results are cached.  `open_body` gets a
    compressed body and its flags. It returns the decompressed body. If it raises a
    ValueError, the body stays as stored, and `unopened` of the batch has the reason.
    Without `open_body` all bodies stay as stored. `unwrap` makes rows of the items of
    an inner batch. `skip_unqueued` skips prepared and rolled-back records, which
    consumers never get.
    """

    cdef Row *rows
    cdef int64_t row_count
    cdef int64_t row_capacity
    cdef Column *columns
    cdef int column_count
    cdef TopicSlot *topics
    cdef Text *pairs
    cdef bint reads_properties
    cdef bint reads_texts
    cdef bint skips_unqueued
    cdef object wants_topic
    cdef object open_body
    cdef bint unwraps
    cdef const uint8_t[::1] data
    cdef list pinned            # decompressed bodies, repaired texts, rows point here
    cdef list unopened          # positions of bodies that cannot be decompressed
    cdef str reason
    cdef int64_t text_total
    cdef int64_t topic_total
    cdef int64_t body_total
    cdef int64_t pair_total
    cdef int64_t tags_total
    cdef int64_t keys_total
    cdef int64_t unique_total

    def __cinit__(
        self,
        columns not None,
        *,
        wants_topic=None,
        open_body=None,
        bint unwrap=True,
        bint skip_unqueued=True,
    ):
        cdef int i
        unknown = [name for name in columns if name not in COLUMNS]
        if unknown:
            raise ValueError(f"no such column: {', '.join(unknown)}")
        self.column_count = len(columns)
        self.columns = <Column *>resize_table(
            NULL, max(1, self.column_count) * sizeof(Column)
        )
        self.topics = <TopicSlot *>resize_table(NULL, TOPIC_SLOTS * sizeof(TopicSlot))
        self.rows = <Row *>resize_table(NULL, FIRST_ROWS * sizeof(Row))
        self.pairs = <Text *>resize_table(NULL, 2 * (PAIR_LIMIT + 1) * sizeof(Text))
        self.row_capacity = FIRST_ROWS
        memset(self.topics, 0, TOPIC_SLOTS * sizeof(TopicSlot))
        for i, name in enumerate(columns):
            self.columns[i].kind = COLUMNS[name]
        wanted = set(columns)
        self.reads_properties = bool(
            wanted & {"tags", "keys", "msgId", "properties"}
        )
        self.reads_texts = self.reads_properties or "propertiesText" in wanted
        self.wants_topic = wants_topic
        self.open_body = open_body
        self.unwraps = unwrap
        self.skips_unqueued = skip_unqueued
        self.pinned = []
        self.unopened = []

    def __dealloc__(self):
        free(self.rows)
        free(self.columns)
        free(self.topics)
        free(self.pairs)

    def measure(
        self,
        const uint8_t[::1] data not None,
        int64_t position,
        int64_t end,
        *,
        int64_t base_offset=-1,
        bint check_crc=False,
        int64_t max_rows=16384,
        int64_t max_bytes=1 << 24,
    ):
        """Read records of data[position:end] until one of the limits is reached.

        `base_offset` is the physical offset of data[0]; negative: not compared. If the
        records end at a record boundary, the status is OK. For another end at
        `position` it is the cause, with details in `reason`. `sizes` has the bytes of
        the buffers to allocate for each column, in the order of the module's head.
        """
        cdef RecordParts parts
        cdef RecordStatus status = OK
        cdef int64_t start = position, records = 0
        cdef const uint8_t *p
        if not 0 <= position <= end <= data.shape[0]:
            raise IndexError(f"[{position}, {end}) outside {data.shape[0]} bytes")
        self.start_batch(data)
        p = &data[0] if data.shape[0] else NULL
        with nogil:
            while (
                position < end
                and self.row_count < max_rows
                and position - start < max_bytes
                and self.body_total < max_bytes
            ):
                status = split_record(p + position, end - position, check_crc, &parts)
                if status == OK and base_offset >= 0 and (
                    parts.physical_offset != base_offset + position
                ):
                    status = BAD_OFFSET
                if status == OK:
                    status = self.take_record(p + position, &parts)
                if status != OK:
                    break
                position += parts.size
                records += 1
        return Measured(
            Status(status), position, records, self.row_count,
            [self.sizes_of(self.columns[i].kind) for i in range(self.column_count)],
            self.reason, self.unopened,
        )

    def fill(self, list addresses not None):
        """Write the measured rows to buffers at these addresses, of the measured sizes.

        Returns for each column its number of nulls, and the used bytes of each buffer.
        """
        cdef int64_t first = 0, last
        cdef int i
        if len(addresses) != self.column_count:
            raise ValueError(f"{len(addresses)} of {self.column_count} columns")
        for i in range(self.column_count):
            self.set_buffers(self.columns + i, addresses[i])
        with nogil:
            while first < self.row_count:
                last = min(first + BLOCK, self.row_count)
                for i in range(self.column_count):
                    self.fill_block(self.columns + i, first, last)
                first = last
        return [self.used_of(self.columns + i) for i in range(self.column_count)]

    cdef void fill_block(
        self, Column *column, int64_t first, int64_t last
    ) noexcept nogil:
        if column.kind < LAST_I64:
            fill_numbers(column, self.rows, first, last)
        elif column.kind <= MESSAGE_ID:
            fill_texts(column, self.rows, first, last)
        elif column.kind < LAST_TEXT:
            fill_written(column, self.rows, first, last)
        else:
            fill_maps(column, self.rows, first, last, self.pairs)

    cdef int start_batch(self, const uint8_t[::1] data) except -1:
        self.data = data
        self.pinned = []
        self.unopened = []
        self.reason = ""
        self.row_count = 0
        self.text_total = self.topic_total = self.body_total = self.pair_total = 0
        self.tags_total = self.keys_total = self.unique_total = 0
        return 0

    cdef RecordStatus take_record(
        self, const uint8_t *p, RecordParts *parts
    ) except? BAD_LENGTHS nogil:
        """Add the rows of one record."""
        cdef Row row
        cdef bint is_opened = True
        cdef int32_t state = parts.sys_flag & RecordFlag.TRANSACTION_MASK
        memset(&row, 0, sizeof(Row))
        if self.skips_unqueued and (
            state == RecordFlag.TRANSACTION_PREPARED
            or state == RecordFlag.TRANSACTION_ROLLBACK
        ):
            return OK
        row.topic.at = p + parts.topic_at
        row.topic.size = parts.topic_size
        if not self.is_wanted(&row.topic):
            return OK
        row.record = p
        row.record_size = <int32_t>parts.size
        row.queue_offset = parts.queue_offset
        row.sys_flag = parts.sys_flag
        row.flag = <int32_t>get32(p + RecordLayout.FLAG_AT)
        row.body.at = p + parts.body_at
        row.body.size = parts.body_size
        row.properties.at = p + parts.properties_at
        row.properties.size = parts.properties_size
        if row.sys_flag & COMPRESSED and self.open_body is not None:
            with gil:
                is_opened = self.open(&row)
        if row.sys_flag & INNER_BATCH and self.unwraps and is_opened:
            return self.take_items(row)
        self.add(&row)
        return OK

    cdef RecordStatus take_items(self, Row row) except? BAD_LENGTHS nogil:
        cdef const uint8_t *p = row.body.at
        cdef int64_t left = row.body.size, size, count = self.row_count
        while left > 0:
            size = item_at(p, left, &row)
            if size < 0 or (
                (self.row_count - count) * row.topic.size > ITEMS_TOPIC_LIMIT
            ):
                with gil:
                    self.reason = "its inner batch has lengths that do not add up"
                    if size > 0:
                        self.reason = "its inner batch has too many items"
                self.row_count = count
                return BAD_LENGTHS
            self.add(&row)
            row.queue_offset += 1
            p += size
            left -= size
        return OK

    cdef int add(self, Row *row) except -1 nogil:
        """Add a row: read its properties, and repair text that is not UTF-8."""
        if self.reads_texts and not is_text(row.properties.at, row.properties.size):
            with gil:
                self.repair_text(&row.properties)
        row.pairs = 0
        memset(&row.tags, 0, 3 * sizeof(Text))
        if self.reads_properties:
            read_properties(row)
        if self.row_count == self.row_capacity:
            with gil:
                self.rows = <Row *>resize_table(
                    self.rows, 2 * self.row_capacity * sizeof(Row)
                )
                self.row_capacity *= 2
        self.rows[self.row_count] = row[0]
        self.row_count += 1
        self.topic_total += row.topic.size
        self.body_total += row.body.size
        self.text_total += row.properties.size
        self.pair_total += row.pairs
        self.tags_total += row.tags.size
        self.keys_total += row.keys.size
        self.unique_total += row.unique.size if row.unique.at != NULL else ID_LIMIT
        return 0

    cdef bint open(self, Row *row) except -1:
        """Decompress the body of a row; False if that fails: it stays as stored."""
        packed = PyBytes_FromStringAndSize(<const char *>row.body.at, row.body.size)
        try:
            opened = self.open_body(packed, row.sys_flag)
        except ValueError as error:
            if len(self.unopened) < UNOPENED_LIMIT:
                topic = row.topic.at[:row.topic.size].decode("utf-8", "replace")
                queue_id = <int32_t>get32(row.record + RecordLayout.QUEUE_ID_AT)
                self.unopened.append(
                    f"{topic} queue {queue_id} offset {row.queue_offset}: {error}"
                )
            return False
        self.pin(&row.body, opened)
        return True

    cdef int repair_text(self, Text *text) except -1:
        raw = PyBytes_FromStringAndSize(<const char *>text.at, text.size)
        self.pin(text, raw.decode("utf-8", "replace").encode())
        return 0

    cdef int pin(self, Text *text, bytes value) except -1:
        self.pinned.append(value)
        text.at = <const uint8_t *>PyBytes_AS_STRING(value)
        text.size = len(value)
        return 0

    cdef bint is_wanted(self, Text *topic) except -1 nogil:
        """Return the cached result of `wants_topic`; calls it for a new name."""
        cdef TopicSlot *slot
        cdef uint32_t mixed = <uint32_t>topic.size
        cdef int64_t i
        for i in range(max(0, topic.size - 4), topic.size):
            mixed = 31 * mixed + topic.at[i]
        slot = self.topics + mixed % TOPIC_SLOTS
        if slot.size and slot.size == topic.size and (
            memcmp(slot.name, topic.at, topic.size) == 0
        ):
            return slot.is_wanted
        with gil:
            return self.ask_topic(topic, slot)

    cdef bint ask_topic(self, Text *topic, TopicSlot *slot) except -1:
        name = PyBytes_FromStringAndSize(<const char *>topic.at, topic.size)
        text = name.decode("utf-8", "replace")
        is_wanted = self.wants_topic is None or bool(self.wants_topic(text))
        if is_wanted and text.encode() != name:
            self.pin(topic, text.encode())
        elif topic.size <= TOPIC_SLOT_SIZE:
            slot.size = <uint8_t>topic.size
            slot.is_wanted = is_wanted
            memcpy(slot.name, <const char *>name, topic.size)
        return is_wanted

    cdef tuple sizes_of(self, int kind):
        cdef int64_t rows = self.row_count
        offsets = 4 * (rows + 1)
        if kind < LAST_I32:
            return (4 * rows,)
        if kind < LAST_I64:
            return (8 * rows,)
        if kind == PROPERTIES:
            inner = 4 * (self.pair_total + 1)
            return offsets, inner, self.text_total, inner, self.text_total
        size = {
            TAGS: self.tags_total,
            KEYS: self.keys_total,
            TOPIC: self.topic_total,
            BODY: self.body_total,
            PROPERTIES_TEXT: self.text_total,
            MESSAGE_ID: self.unique_total,
            OFFSET_ID: ID_LIMIT * rows,
        }.get(kind, HOST_LIMIT * rows)
        return ((rows + 7) // 8, offsets, size) if kind < LAST_NULL else (offsets, size)

    cdef int set_buffers(self, Column *column, tuple addresses) except -1:
        """Set the buffers of a column."""
        cdef int kind = column.kind
        memset(column, 0, sizeof(Column))
        column.kind = kind
        if len(addresses) != len(self.sizes_of(kind)):
            raise ValueError(f"{len(addresses)} buffers for a column")
        if kind < LAST_I64:
            column.values = as_pointer(addresses[0])
            return 0
        if kind == PROPERTIES:
            column.offsets = <int32_t *>as_pointer(addresses[0])
            column.name_offsets = <int32_t *>as_pointer(addresses[1])
            column.names = as_pointer(addresses[2])
            column.value_offsets = <int32_t *>as_pointer(addresses[3])
            column.values = as_pointer(addresses[4])
            column.name_offsets[0] = column.value_offsets[0] = 0
        else:
            if kind < LAST_NULL:
                column.validity = as_pointer(addresses[0])
                memset(column.validity, 0xFF, (self.row_count + 7) // 8)
                addresses = addresses[1:]
            column.offsets = <int32_t *>as_pointer(addresses[0])
            column.values = as_pointer(addresses[1])
        column.offsets[0] = 0
        return 0

    cdef tuple used_of(self, Column *column):
        sizes = self.sizes_of(column.kind)
        if column.kind == PROPERTIES:
            inner = 4 * (column.pairs + 1)
            return 0, (sizes[0], inner, column.names_used, inner, column.used)
        if column.kind > LAST_I64:
            sizes = (*sizes[:len(sizes) - 1], column.used)
        return column.nulls, sizes


cdef void *resize_table(void *old, size_t size) except NULL:
    cdef void *new = realloc(old, size)
    if new == NULL:
        raise MemoryError(f"no {size} bytes for a table of rows")
    return new


cdef uint8_t *as_pointer(address) except? NULL:
    return <uint8_t *><uintptr_t>address


def walk_chain(
    const uint8_t[::1] data not None,
    int64_t position,
    int64_t end,
    *,
    int64_t base_offset,
    bint check_crc=False,
    int64_t stop_at=INT64_MAX,
):
    """Walk records from `position` to the first one at or after `stop_at`.

    Ends earlier at `end`, or where no valid record starts.
    """
    cdef RecordParts parts
    cdef RecordStatus status = OK
    cdef int64_t records = 0
    cdef int64_t least_ms = INT64_MAX
    cdef int64_t greatest_ms = INT64_MIN
    cdef const uint8_t *p
    if not 0 <= position <= end <= data.shape[0]:
        raise IndexError(f"[{position}, {end}) outside {data.shape[0]} bytes")
    p = &data[0] if data.shape[0] else NULL
    with nogil:
        while position < end and position < stop_at:
            status = check_record(
                p + position, end - position, base_offset + position, check_crc, &parts
            )
            if status != OK:
                break
            position += parts.size
            records += 1
            least_ms = min(least_ms, parts.store_ms)
            greatest_ms = max(greatest_ms, parts.store_ms)
    return Walked(Status(status), position, records, least_ms, greatest_ms)


def find_record(
    const uint8_t[::1] data not None,
    int64_t position,
    int64_t end,
    *,
    int64_t base_offset,
):
    """Return the first index at or after `position` where records seem to start.

    Returns `end` if there is no record.  This is a hint: a body may contain records
    that are well-formed and have the expected offsets.
    """
    cdef const uint8_t *p
    if not 0 <= position <= end <= data.shape[0]:
        raise IndexError(f"[{position}, {end}) outside {data.shape[0]} bytes")
    p = &data[0] if data.shape[0] else NULL
    with nogil:
        while position + RecordLayout.FIXED_SIZE_V1 <= end:
            if (
                p[position + RecordLayout.MAGIC_AT] == 0xDA
                and p[position + RecordLayout.MAGIC_AT + 1] == 0xA3
                and is_chain(p + position, end - position, base_offset + position)
            ):
                break
            position += 1
        else:
            position = end
    return position


cdef inline RecordStatus check_record(
    const uint8_t *p,
    int64_t readable,
    int64_t offset,
    bint check_crc,
    RecordParts *parts,
) noexcept nogil:
    cdef RecordStatus status = split_record(p, readable, check_crc, parts)
    return BAD_OFFSET if status == OK and parts.physical_offset != offset else status


cdef bint is_chain(const uint8_t *p, int64_t readable, int64_t offset) noexcept nogil:
    """Return whether a record starts here, followed by records, a blank or the end."""
    cdef RecordParts parts
    cdef RecordStatus status = OK
    cdef int64_t at = 0
    cdef int i
    for i in range(CHAIN + 1):
        status = check_record(p + at, readable - at, offset + at, False, &parts)
        if status != OK:
            return i > 0 and (status in (BLANK, END) or at == readable)
        at += parts.size
    return True
