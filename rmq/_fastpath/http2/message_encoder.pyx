"""MessageEncoder: the messages of a receive, from records to protobuf.

    ReceiveMessageResponse  2 the message
    Message                 1 Resource topic, 2 Property for each of the user's,
                            3 SystemProperties, 4 body
    Resource                2 name
    Property                1 key, 2 value
    Digest                  1 type, 2 checksum
    Time                    1 seconds, 2 nanos

`put_system` writes SystemProperties, whose fields are all scalars, digest or times.
It encodes as `message_of` of rmq_plugins/grpc/messages.py does, byte for byte. Python
encodes records of retry topics and lite topics, records without a key, with a host of
IPv6, and texts that are not printable ASCII.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memcmp, memset

from rmq._fastpath.bytes.ascii cimport (
    is_literal, put_integer, put_literal, put_text, read_decimal,
)
from rmq._fastpath.bytes.checksum cimport crc_of
from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.bytes.name_table cimport (
    Name, find_name, init_names, insert_name, name_key,
)
from rmq._fastpath.http2.proto_wire cimport (
    Span, begin_bytes, put_bytes, put_number, put_varint, varint_size,
)
from rmq._fastpath.http2.sent_message cimport is_text
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.layout cimport RecordLayout

cdef enum:
    NAME_END = 1
    PAIR_END = 2
    BLANK = 32
    IPV4_HOST = 8               # bytes: address and port
    COMPRESSED = 1              # a bit of sysFlag
    IDENTITY = 1
    GZIP = 2
    CRC32 = 1
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    FIXED_ROOM = 2048           # numbers, hosts, tags and the handle without names
    RECONSUME_BEFORE_BODY = 16  # bytes from the times of delivery to the body
    NANOS_PER_MS = 1_000_000

cdef int64_t TIME_LIMIT = 100_000_000_000_000     # milliseconds
cdef const char *HEX = "0123456789ABCDEF"


cdef int split_pairs(const uint8_t *text, int64_t size, Pair *pairs) noexcept nogil:
    """Find the properties of a record; -1 if Python has to read them.

    The last value of a name counts; a pair without a name or a value is left out.
    """
    cdef const uint8_t *end = text + size
    cdef const uint8_t *middle
    cdef const uint8_t *stop
    cdef Pair pair
    cdef int i, count = 0
    while text < end:
        stop = <const uint8_t *>memchr(text, PAIR_END, end - text)
        if stop == NULL:
            stop = end
        middle = <const uint8_t *>memchr(text, NAME_END, stop - text)
        if middle != NULL and middle > text and middle + 1 < stop:
            pair.name.data, pair.name.size = text, middle - text
            pair.value.data, pair.value.size = middle + 1, stop - middle - 1
            if not is_text(&pair.name) or not is_text(&pair.value):
                return -1
            for i in range(count):
                if is_same(&pairs[i].name, &pair.name):
                    pairs[i].value = pair.value
                    break
            else:
                if count == PAIR_LIMIT:
                    return -1
                pairs[count] = pair
                count += 1
        text = stop + 1
    return count


cdef inline bint is_same(const Span *one, const Span *other) noexcept nogil:
    return one.size == other.size and memcmp(one.data, other.data, one.size) == 0


cdef inline int64_t field_size(int64_t size) noexcept nogil:
    """Return the size of a field with so many bytes; an empty one is not written."""
    return 0 if size == 0 else 1 + varint_size(size) + size


cdef inline uint8_t *put_present(
    uint8_t *out, uint32_t number, uint64_t value
) noexcept nogil:
    """Write a field with a number, also if it is 0."""
    return put_varint(put_varint(out, number << 3), value)


cdef inline int64_t number_size(uint64_t value) noexcept nogil:
    return 0 if value == 0 else 1 + varint_size(value)


cdef int32_t earlier_of(const uint8_t *record, const RecordParts *parts) noexcept nogil:
    """Return how often a record was delivered before."""
    return <int32_t>get32(record + parts.body_at - RECONSUME_BEFORE_BODY)


cdef uint8_t *put_time(uint8_t *out, uint32_t number, int64_t ms) noexcept nogil:
    """Write a time, or a duration, of milliseconds."""
    cdef int64_t seconds = ms // 1000, nanos = ms % 1000 * NANOS_PER_MS
    out = begin_bytes(out, number, number_size(seconds) + number_size(nanos))
    return put_number(put_number(out, 1, seconds), 2, nanos)


cdef uint8_t *put_host(
    uint8_t *out, uint32_t number, const uint8_t *host
) noexcept nogil:
    """Write an IPv4 host as `address:port`."""
    cdef uint8_t[32] text
    cdef uint8_t *end = text
    cdef int i
    for i in range(4):
        end = put_literal(put_integer(end, host[i]), b"." if i < 3 else b":")
    end = put_integer(end, get32(host + 4))
    return put_bytes(out, number, text, end - text)


cdef uint8_t *put_digest(
    uint8_t *out, const uint8_t *body, int64_t size, bint is_padded
) noexcept nogil:
    """Write the CRC-32 of the body in hexadecimal digits."""
    cdef uint32_t crc = crc_of(body, size)
    cdef uint8_t[8] digits
    cdef int first = 8
    while first > 0 and (crc or is_padded or first == 8):
        first -= 1
        digits[first] = <uint8_t>HEX[crc & 15]
        crc >>= 4
    out = begin_bytes(out, 4, 2 + field_size(8 - first))
    return put_bytes(put_number(out, 1, CRC32), 2, digits + first, 8 - first)


cdef uint8_t *put_keys(uint8_t *out, const Span *keys) noexcept nogil:
    """Write the keys, which blanks separate."""
    cdef const uint8_t *p = keys.data
    cdef const uint8_t *end = p + keys.size
    cdef const uint8_t *blank
    while p < end:
        blank = <const uint8_t *>memchr(p, BLANK, end - p)
        if blank == NULL:
            blank = end
        out = put_bytes(out, 2, p, blank - p)
        p = blank + 1
    return out


@cython.final
cdef class MessageEncoder:
    """Encodes the records of a broker for its clients."""

    def __cinit__(self, str broker_name not None, *, reserved_names):
        self.broker_name = broker_name.encode()
        self.reserved_keys = []
        init_names(&self.reserved)
        for name in reserved_names:
            key = name_key([name])
            self.reserved_keys.append(key)
            insert_name(&self.reserved, key, <void *>self)

    def __dealloc__(self):
        free(self.reserved.slots)
        free(self.room)

    def encode(
        self, bytes records not None, str topic not None, dict starts not None, *,
        int64_t pop_ms, int64_t invisible_ms, int64_t revive_queue, bint is_padded,
    ):
        """Return (position, message, handle, earlier deliveries) of each record.

        `starts` has the offset where the POP began, by queue. The message is None if
        Python has to encode the record, and the handle is empty then. ValueError for
        broken records.
        """
        cdef const uint8_t *data = records
        cdef const uint8_t *record
        cdef bytes name = topic.encode()
        cdef int64_t size = len(records), position = 0
        cdef int32_t earlier
        cdef Delivered delivered
        cdef RecordParts parts
        delivered.topic, delivered.topic_size = name, len(name)
        delivered.pop_ms, delivered.invisible_ms = pop_ms, invisible_ms
        delivered.revive_queue, delivered.is_padded = revive_queue, is_padded
        found = []
        while position < size:
            record = data + position
            if split_record(record, size - position, False, &parts) != OK:
                raise ValueError(f"no record at {position}")
            earlier = earlier_of(record, &parts)
            delivered.start = starts.get(parts.queue_id, parts.queue_offset)
            message, handle = self.encode_one(record, &parts, &delivered, earlier)
            found.append((position, message, handle, earlier))
            position += parts.size
        return found

    cdef bint is_plain(
        self, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered, int32_t earlier,
    ) noexcept nogil:
        """True if the numbers of a record are as a broker writes them."""
        return (
            parts.born_host_size == IPV4_HOST
            and parts.store_host_size == IPV4_HOST
            and earlier >= 0
            and parts.queue_id >= 0
            and parts.queue_offset >= 0
            and parts.physical_offset >= 0
            and delivered.start >= 0
            and 0 <= parts.store_ms < TIME_LIMIT
            and 0 <= <int64_t>get64(record + RecordLayout.BORN_MS_AT) < TIME_LIMIT
        )

    cdef bint find_values(
        self, const Pair *pairs, int count, KnownValues *known
    ) noexcept nogil:
        """Find the properties with a meaning; False if Python has to encode them."""
        cdef const Span *name
        cdef const Span *value
        cdef int i
        memset(known, 0, sizeof(KnownValues))
        known.due_ms = -1
        for i in range(count):
            name, value = &pairs[i].name, &pairs[i].value
            if is_literal(name.data, name.size, b"UNIQ_KEY"):
                known.message_id = value[0]
            elif is_literal(name.data, name.size, b"TAGS"):
                known.tag = value[0]
            elif is_literal(name.data, name.size, b"KEYS"):
                known.keys = value[0]
            elif is_literal(name.data, name.size, b"__BORNHOST"):
                known.born_host = value[0]
            elif is_literal(name.data, name.size, b"__SHARDINGKEY"):
                known.group = value[0]
            elif is_literal(name.data, name.size, b"TRACE_CONTEXT"):
                known.trace_context = value[0]
            elif is_literal(name.data, name.size, b"TRAN_MSG"):
                known.is_half = True
            elif is_literal(name.data, name.size, b"TIMER_DELIVER_MS"):
                if not read_decimal(
                    value.data, value.size, 0, TIME_LIMIT, &known.due_ms
                ):
                    return False
            elif is_literal(name.data, name.size, b"POP_CK") or (
                is_literal(name.data, name.size, b"__LITE_TOPIC")
            ):
                return False
        return known.message_id.size > 0

    cdef encode_one(
        self, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered, int32_t earlier,
    ):
        """Return a message and its handle; (None, "") if Python has to encode it."""
        cdef int64_t size = self.prepare(record, parts, delivered, earlier)
        if size < 0:
            return None, ""
        message = PyBytes_FromStringAndSize(NULL, size)
        self.put_prepared(
            <uint8_t *><const uint8_t *>message, record, parts, delivered
        )
        return message, self.handle_text()

    cdef str handle_text(self):
        """Return the handle of the message that is prepared."""
        return self.room[:self.user - self.room].decode()

    cdef int64_t prepare(
        self, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered, int32_t earlier,
    ) except -2:
        """Encode the parts of a message; return its size, -1 if Python has to."""
        cdef Pair[PAIR_LIMIT] pairs
        cdef KnownValues known
        cdef Span handle
        cdef int64_t topic_size = field_size(delivered.topic_size)
        cdef int count = -1
        if self.is_plain(record, parts, delivered, earlier):
            count = split_pairs(
                record + parts.properties_at, parts.properties_size, pairs
            )
        if count < 0 or not self.find_values(pairs, count, &known):
            return -1
        # each name and value once; a tag and a size for each, also for each key
        self.reserve(
            FIXED_ROOM + len(self.broker_name) + 8 * PAIR_LIMIT
            + 4 * parts.properties_size
        )
        handle.data = self.room
        self.user = self.put_handle(self.room, parts, delivered)
        handle.size = self.user - self.room
        self.system = self.put_user_properties(self.user, pairs, count)
        self.end = self.put_system(
            self.system, record, parts, &known, delivered, &handle, earlier
        )
        self.size = (
            1 + varint_size(topic_size) + topic_size + (self.system - self.user)
            + 1 + varint_size(self.end - self.system) + (self.end - self.system)
            + field_size(parts.body_size)
        )
        return 1 + varint_size(self.size) + self.size

    cdef uint8_t *put_prepared(
        self, uint8_t *out, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered,
    ) noexcept nogil:
        """Write the message that is prepared."""
        out = begin_bytes(out, 2, self.size)
        out = begin_bytes(out, 1, field_size(delivered.topic_size))
        out = put_bytes(out, 2, delivered.topic, delivered.topic_size)
        out = put_text(out, <const char *>self.user, self.system - self.user)
        out = put_bytes(out, 3, self.system, self.end - self.system)
        return put_bytes(out, 4, record + parts.body_at, parts.body_size)

    cdef bint reserve(self, int64_t size) except -1:
        """Make room for the parts of a message."""
        if size > self.capacity:
            free(self.room)
            self.capacity = 0
            self.room = <uint8_t *>malloc(size)
            if self.room == NULL:
                raise MemoryError
            self.capacity = size
        return True

    cdef uint8_t *put_handle(
        self, uint8_t *out, const RecordParts *parts, const Delivered *delivered
    ) noexcept:
        """Write a receipt handle, see plugins/rmq_plugins/grpc/handles.py."""
        cdef const char *broker_name = self.broker_name
        out = put_literal(put_integer(out, delivered.start), b" ")
        out = put_literal(put_integer(out, delivered.pop_ms), b" ")
        out = put_literal(put_integer(out, delivered.invisible_ms), b" ")
        out = put_literal(put_integer(out, delivered.revive_queue), b" 0 ")
        out = put_literal(put_text(out, broker_name, len(self.broker_name)), b" ")
        out = put_literal(put_integer(out, parts.queue_id), b" ")
        out = put_literal(put_integer(out, parts.queue_offset), b" ")
        return put_integer(out, parts.physical_offset)

    cdef bint is_reserved(self, const Span *name) noexcept nogil:
        cdef Name wanted
        wanted.data, wanted.size = name.data, name.size
        return find_name(&self.reserved, &wanted, 1) != NULL

    cdef uint8_t *put_user_properties(
        self, uint8_t *out, const Pair *pairs, int count
    ) noexcept nogil:
        cdef const Pair *pair
        cdef int i
        for i in range(count):
            pair = &pairs[i]
            if self.is_reserved(&pair.name):
                continue
            out = begin_bytes(
                out, 2, field_size(pair.name.size) + field_size(pair.value.size)
            )
            out = put_bytes(out, 1, pair.name.data, pair.name.size)
            out = put_bytes(out, 2, pair.value.data, pair.value.size)
        return out

    cdef uint8_t *put_system(
        self, uint8_t *out, const uint8_t *record, const RecordParts *parts,
        const KnownValues *known, const Delivered *delivered, const Span *handle,
        int32_t earlier,
    ) noexcept nogil:
        """Write the fields of the system properties."""
        cdef int64_t born_ms = get64(record + RecordLayout.BORN_MS_AT)
        out = put_bytes(out, 1, known.tag.data, known.tag.size)
        out = put_keys(out, &known.keys)
        out = put_bytes(out, 3, known.message_id.data, known.message_id.size)
        out = put_digest(
            out, record + parts.body_at, parts.body_size, delivered.is_padded
        )
        out = put_number(out, 5, GZIP if parts.sys_flag & COMPRESSED else IDENTITY)
        out = put_number(out, 6, kind_of(known))
        out = put_time(out, 7, born_ms)
        if known.born_host.data != NULL:
            out = put_bytes(out, 8, known.born_host.data, known.born_host.size)
        else:
            out = put_host(out, 8, record + RecordLayout.BORN_HOST_AT)
        out = put_time(out, 9, parts.store_ms)
        out = put_host(
            out, 10, record + parts.body_at - RECONSUME_BEFORE_BODY - IPV4_HOST
        )
        if known.due_ms >= 0:
            out = put_time(out, 11, known.due_ms)
        out = put_bytes(out, 12, handle.data, handle.size)
        out = put_number(out, 13, parts.queue_id)
        out = put_present(out, 14, parts.queue_offset)
        out = put_time(out, 15, delivered.invisible_ms)
        out = put_present(out, 16, earlier + 1)
        out = put_bytes(out, 17, known.group.data, known.group.size)
        return put_bytes(out, 18, known.trace_context.data, known.trace_context.size)


cdef int kind_of(const KnownValues *known) noexcept nogil:
    """Return the type of a message by its properties."""
    if known.is_half:
        return TRANSACTION
    if known.group.data != NULL:
        return FIFO
    return DELAY if known.due_ms >= 0 else NORMAL
