"""SentMessage: the one plain message of a SendMessageRequest, without protobuf.

    request             1 *Message
    a message           1 Resource topic, 2 *Property, 3 SystemProperties, 4 body
    Resource            1 namespace, 2 name
    SystemProperties    1 tag, 2 *keys, 3 message_id, 5 body_encoding, 6 message_type,
                        7 born_timestamp, 8 born_host, 11 delivery_timestamp,
                        13 queue_id, 17 message_group, 18 trace_context,
                        19 recovery of a transaction, 21 lite_topic, 22 priority
    Time                1 seconds, 2 nanos

`read_sent_message` is False for messages that are not plain: then Python reads the
call. Nothing here touches a Python object.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from rmq._fastpath.http2.proto_wire cimport BYTES, NUMBER, Field, Span, read_field

cdef enum:
    GZIP = 2                    # value of `body_encoding`
    SECONDS_LIMIT = 100_000_000_000
    NANOS_PER_MS = 1_000_000
    MAX_NANOS = 999_999_999
    MILLISECONDS = 1000


cdef bint is_text(const Span *span) noexcept nogil:
    """True for printable ASCII; Python decides about other letters."""
    cdef int64_t i
    for i in range(span.size):
        if not 32 <= span.data[i] <= 126:
            return False
    return True


cdef bint is_tag(const Span *span) noexcept nogil:
    """True for a printable tag without `|`, and with more than blanks."""
    cdef int64_t i
    cdef bint has_letter = False
    for i in range(span.size):
        if not 32 <= span.data[i] <= 126 or span.data[i] == 124:
            return False
        has_letter |= span.data[i] != 32
    return has_letter


cdef bint is_mostly_body(
    const uint8_t *p, int64_t size, int64_t limit
) noexcept nogil:
    """True if at most `limit` bytes of a SendMessageRequest are outside of bodies.

    Protobuf makes an object of each field: two bytes may become 70. So most of a large
    request has to be bodies. False also for broken bytes.
    """
    cdef const uint8_t *end = p + size
    cdef const uint8_t *inner
    cdef const uint8_t *start
    cdef Field message, field
    while p < end:
        start = p
        p = read_field(p, end, &message)
        if p == NULL:
            return False
        limit -= p - start
        if message.number == 1 and message.kind == BYTES:
            inner = message.bytes.data
            while inner < p and limit >= -size:
                inner = read_field(inner, p, &field)
                if inner == NULL:
                    return False
                if field.number == 4 and field.kind == BYTES:
                    limit += field.bytes.size
        if limit < 0:
            return False
    return True


cdef bint read_resource(const Span *resource, Span *name) noexcept nogil:
    """Read the name of a topic; False with a namespace."""
    cdef const uint8_t *p = resource.data
    cdef const uint8_t *end = p + resource.size
    cdef Field field
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.number > 2 or field.kind != BYTES:
            return False
        if field.number == 2:
            name[0] = field.bytes
        elif field.bytes.size:
            return False
    return name.data != NULL


cdef bint is_flat(const Span *message) noexcept nogil:
    """True if an unused part has only numbers and ASCII texts: protobuf reads these."""
    return is_nested(message, NULL, 0)


cdef bint is_nested(
    const Span *message, const uint32_t *path, int depth
) noexcept nogil:
    """True if an unused part is flat, without regard to `depth` levels of messages.

    Field `path[0]` has messages, and `path[1]` of these, and so on; all are read.
    """
    cdef const uint8_t *p = message.data
    cdef const uint8_t *end = p + message.size
    cdef Field field
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.kind not in (NUMBER, BYTES):
            return False
        if field.kind == NUMBER:
            continue
        if depth and field.number == path[0]:
            if not is_nested(&field.bytes, path + 1, depth - 1):
                return False
        elif not is_text(&field.bytes):
            return False
    return True


cdef bint read_ms(const Span *time, int64_t *ms) noexcept nogil:
    """Read a time as milliseconds; the last value of a field counts."""
    cdef const uint8_t *p = time.data
    cdef const uint8_t *end = p + time.size
    cdef int64_t seconds = 0, nanos = 0
    cdef Field field
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.number > 2 or field.kind != NUMBER:
            return False
        if field.value > SECONDS_LIMIT:
            return False
        if field.number == 1:
            seconds = <int64_t>field.value
        else:
            nanos = <int64_t>field.value
    if nanos > MAX_NANOS:
        return False
    ms[0] = seconds * MILLISECONDS + nanos // NANOS_PER_MS
    return True


cdef bint read_system(SentMessage *found) noexcept nogil:
    """Read the system properties; False for types and fields that Python reads."""
    cdef const uint8_t *p = found.system.data
    cdef const uint8_t *end = p + found.system.size
    cdef Field field
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or not read_system_field(found, &field):
            return False
    return True


cdef bint read_system_field(SentMessage *found, const Field *field) noexcept nogil:
    """Read a field; False also for the second part of a time: protobuf merges parts."""
    cdef uint32_t number = field.number
    if number in (5, 6, 13, 14, 16):
        if field.kind != NUMBER or field.value > 0x7FFFFFFF:
            return False
        if number == 5:
            found.is_compressed = field.value == GZIP
            return field.value <= GZIP
        if number == 6:
            found.kind = <MessageType>field.value
        elif number == 13:
            found.queue_id = <int64_t>field.value
        return True
    if number in (19, 21, 22) or field.kind != BYTES:
        return False
    if number == 1:
        found.tag = field.bytes
    elif number == 3:
        found.message_id = field.bytes
    elif number == 7:
        return found.born_ms == 0 and read_ms(&field.bytes, &found.born_ms)
    elif number == 8:
        found.born_host = field.bytes
    elif number == 11:
        return found.due_ms <= 0 and read_ms(&field.bytes, &found.due_ms)
    elif number == 17:
        found.group = field.bytes
    elif number == 18:
        found.trace_context = field.bytes
    elif number in (10, 12):
        return is_text(&field.bytes)
    elif number in (4, 9, 15, 20):
        return is_flat(&field.bytes)
    return True


cdef bint read_message(SentMessage *found) noexcept nogil:
    """Read the parts of the message; only the user's properties may occur several
    times.
    """
    cdef const uint8_t *p = found.message.data
    cdef const uint8_t *end = p + found.message.size
    cdef Field field
    cdef Span topic
    topic.data = NULL
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.kind != BYTES:
            return False
        if field.number == 1 and topic.data == NULL:
            topic = field.bytes
        elif field.number == 3 and found.system.data == NULL:
            found.system = field.bytes
        elif field.number == 4 and found.body.data == NULL:
            found.body = field.bytes
        elif field.number != 2:
            return False
    return topic.data != NULL and read_resource(&topic, &found.topic)


cdef bint read_sent_message(
    const uint8_t *p, int64_t size, SentMessage *found
) noexcept nogil:
    """Read a request with one message; False if it is not plain."""
    cdef Field field
    memset(found, 0, sizeof(SentMessage))
    found.due_ms = -1
    if read_field(p, p + size, &field) != p + size or field.kind != BYTES:
        return False
    if field.number != 1:
        return False
    found.message = field.bytes
    return (
        read_message(found) and found.system.data != NULL and read_system(found)
    )
