"""SendCalls: SendMessage with one plain message, as request 310.

The call becomes the fields of the request, which the compiled sends check and store. So
a message by gRPC has the same record as by remoting. This module checks what gRPC adds:
the type of the topic, and the names and letters of properties.

    topic          of the message, also as the producer group
    queue          by the message group, that of the call, or the next one
    properties     the user's in their order, UNIQ_KEY, TAGS, KEYS, __SHARDINGKEY,
                   TIMER_DELIVER_MS, TRACE_CONTEXT, __BORNHOST, PGROUP

It serves the topics that Python has registered, and the types NORMAL, FIFO and DELAY.
Python serves texts that are not printable ASCII, and all that it may have to refuse.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

from rmq._fastpath.bytes.ascii cimport (
    is_literal, literal_size, put_integer, put_literal, put_text, read_decimal,
)
from rmq._fastpath.bytes.endian cimport get16, get32
from rmq._fastpath.bytes.hashing cimport java_hash_of
from rmq._fastpath.bytes.name_table cimport (
    Name, find_name, init_names, insert_name, name_key, remove_name,
)
from rmq._fastpath.http2.call_answers cimport (
    MASTER_PERSISTENCE_TIMEOUT, OK, SLAVE_PERSISTENCE_TIMEOUT, put_send_response,
)
from rmq._fastpath.http2.call_paths cimport Call, CallAnswer, CallPath, set_text
from rmq._fastpath.http2.proto_wire cimport BYTES, Field, Span, read_field
from rmq._fastpath.http2.sent_message cimport (
    DELAY, FIFO, NORMAL, SentMessage, is_tag, is_text, read_sent_message,
)
from rmq._fastpath.reactor.native cimport (
    DECLINED, HELD, SERVED, Conn, Frame, Verdict,
)

cdef enum:                      # fields of request 310, in the order of its handler
    GROUP = 0
    TOPIC = 1
    DEFAULT_TOPIC = 2
    DEFAULT_QUEUES = 3
    QUEUE_ID = 4
    SYS_FLAG = 5
    BORN_MS = 6
    FLAG = 7
    PROPERTIES = 8

cdef enum:
    BINARY_TYPE = 1             # serialize type of a header
    ID_LIMIT = 255
    TAG_LIMIT = 255
    GROUP_LIMIT = 64
    KEYS_LIMIT = 4096
    CONTEXT_LIMIT = 1024        # maximum bytes of a trace context or a born host
    USER_LIMIT = 128            # maximum properties of a user
    USER_SIZE_LIMIT = 16 * 1024
    TEXT_ROOM = 32 * 1024       # room for the sum of all limits
    REPLY_SIZE = 8 * 1024
    ANSWER_SIZE = 16 * 1024
    DAY_MS = 86_400_000
    FLUSH_SLAVE_TIMEOUT = 12    # response code of remoting
    HEAD_SIZE = 21              # bytes of a binary header before its remark

cdef int64_t OFFSET_LIMIT = <int64_t>1 << 62     # above every queue offset
cdef uint64_t HASH_FACTOR = 2_862_933_555_777_941_757


cdef int64_t choose_bucket(int32_t hashed, int64_t count) noexcept nogil:
    """Return the bucket of a hash, as Guava's `consistentHash`."""
    cdef uint64_t state = <uint64_t><int64_t>hashed
    cdef int64_t candidate = 0, number, following
    while True:
        state = HASH_FACTOR * state + 1
        number = <int64_t>(state >> 33) + 1
        following = <int64_t>(
            <double>(candidate + 1) / (<double>number / <double>(<int64_t>1 << 31))
        )
        if number == <int64_t>1 << 31 or following >= count:
            return candidate
        candidate = following


cdef inline bint has_span(
    const Span *spans, int count, const Span *wanted
) noexcept nogil:
    cdef int i
    for i in range(count):
        if spans[i].size == wanted.size and (
            memcmp(spans[i].data, wanted.data, wanted.size) == 0
        ):
            return True
    return False


cdef inline uint8_t *put_property(
    uint8_t *out, const char *name, int64_t size, const Span *value
) noexcept nogil:
    """Write a property, whose name has `size` bytes, as a record stores it."""
    out = put_text(out, name, size)
    out[0] = 1
    out = put_text(out + 1, <const char *>value.data, value.size)
    out[0] = 2
    return out + 1


cdef inline uint8_t *put_pair(
    uint8_t *out, const char *name, const Span *value
) noexcept nogil:
    """Write a property whose name is a literal."""
    return put_property(out, name, literal_size(name), value)


cdef inline bint is_any_queue(
    const SentMessage *message, int64_t count
) noexcept nogil:
    """True if neither a group nor the call chooses the queue."""
    return message.group.data == NULL and not 0 < message.queue_id < count


cdef bint has_room(Conn *conn, int64_t size) noexcept nogil:
    return size <= REPLY_SIZE


@cython.final
cdef class SendCalls(CallPath):
    """Serves SendMessage for the topics that were registered."""

    def __cinit__(self):
        self.topics = {}
        self.reserved_keys = []
        init_names(&self.names)
        init_names(&self.reserved)
        self.text = <uint8_t *>malloc(TEXT_ROOM)
        self.reply = <uint8_t *>malloc(REPLY_SIZE)
        self.answer = <uint8_t *>malloc(ANSWER_SIZE)
        if self.text == NULL or self.reply == NULL or self.answer == NULL:
            raise MemoryError

    def __init__(self, int32_t code, *, now_ms, int64_t largest_body, reserved_names):
        """`now_ms` is the clock of times of delivery; no property of a user has one of
        the reserved names.
        """
        self.code = code
        self.now_ms = now_ms
        self.largest_body = largest_body
        for name in reserved_names:
            key = name_key([name])
            self.reserved_keys.append(key)
            insert_name(&self.reserved, key, <void *>self)

    def __dealloc__(self):
        for topic in list(self.topics or ()):
            self.unregister(topic)
        free(self.names.slots)
        free(self.reserved.slots)
        free(self.text)
        free(self.reply)
        free(self.answer)

    # -- topics

    def register(self, str topic not None, int32_t queue_count, kinds):
        """Serve messages of these types for a topic with `queue_count` writable
        queues.
        """
        cdef KnownTopic *known
        cdef bytes key = name_key([topic])
        if queue_count < 1:
            return
        self.unregister(topic)
        known = <KnownTopic *>calloc(1, sizeof(KnownTopic))
        if known == NULL:
            raise MemoryError
        known.queue_count = queue_count
        for kind in kinds:
            known.kinds |= 1 << <int>kind
        try:
            insert_name(&self.names, key, known)
        except BaseException:
            free(known)
            raise
        self.topics[topic] = key, <size_t>known

    def unregister(self, str topic not None):
        """Leave a topic to Python until it is registered again."""
        known = self.topics.pop(topic, None)
        if known is None:
            return
        key, address = known
        remove_name(&self.names, key, <void *><size_t>address)
        free(<void *><size_t>address)

    def take_turn(self):
        """Return the number of the next message that may go to any queue."""
        self.turn += 1
        return self.turn - 1

    cdef KnownTopic *find_topic(self, const SentMessage *message) noexcept nogil:
        cdef Name name
        name.data, name.size = message.topic.data, message.topic.size
        return <KnownTopic *>find_name(&self.names, &name, 1)

    # -- a message

    cdef bint is_plain(
        self, const SentMessage *message, const KnownTopic *topic
    ) noexcept nogil:
        """True if a message passes all checks; if not, Python finds the reason."""
        cdef bint has_group = message.group.data != NULL
        if not 0 < message.body.size <= self.largest_body:
            return False
        if not 0 < message.message_id.size <= ID_LIMIT:
            return False
        if not is_text(&message.message_id):
            return False
        if message.tag.data != NULL and not (
            message.tag.size <= TAG_LIMIT and is_tag(&message.tag)
        ):
            return False
        if message.trace_context.size > CONTEXT_LIMIT or not is_text(
            &message.trace_context
        ):
            return False
        if message.born_host.size > CONTEXT_LIMIT or not is_text(&message.born_host):
            return False
        if not NORMAL <= message.kind <= DELAY or not topic.kinds >> message.kind & 1:
            return False
        if has_group != (message.kind == FIFO):
            return False
        if has_group and not (
            0 < message.group.size <= GROUP_LIMIT and is_text(&message.group)
        ):
            return False
        if (message.due_ms >= 0) != (message.kind == DELAY):
            return False
        return message.due_ms < 0 or self.is_due_within_limit(message.due_ms)

    cdef bint is_due_within_limit(self, int64_t due_ms) noexcept nogil:
        cdef int64_t now_ms
        with gil:
            now_ms = self.now_ms()
        return due_ms - now_ms <= DAY_MS

    cdef int64_t choose_queue(
        self, const SentMessage *message, int32_t count
    ) noexcept nogil:
        if message.group.data != NULL:
            return choose_bucket(
                java_hash_of(message.group.data, message.group.size), count
            )
        if not is_any_queue(message, count):
            return message.queue_id
        return self.turn % count    # `take_turn` follows if the message is stored

    cdef bint is_reserved(self, const Span *name) noexcept nogil:
        cdef Name wanted
        wanted.data, wanted.size = name.data, name.size
        return find_name(&self.reserved, &wanted, 1) != NULL

    cdef uint8_t *put_user_properties(
        self, uint8_t *out, const SentMessage *message
    ) noexcept nogil:
        """Write the properties of the user; NULL if Python has to decide."""
        cdef const uint8_t *p = message.message.data
        cdef const uint8_t *end = p + message.message.size
        cdef const uint8_t *inner
        cdef Field part, field
        cdef Span[USER_LIMIT] known
        cdef Span name, value
        cdef int count = 0
        cdef int64_t size = 0
        while p < end:
            p = read_field(p, end, &part)
            if p == NULL:
                return NULL
            if part.number != 2:
                continue
            name.data = value.data = NULL
            name.size = value.size = 0
            inner = part.bytes.data
            while inner < p:
                inner = read_field(inner, p, &field)
                if inner == NULL or field.kind != BYTES:
                    return NULL
                if field.number == 1:
                    name = field.bytes
                elif field.number == 2:
                    value = field.bytes
            size += name.size + value.size
            if count == USER_LIMIT or size > USER_SIZE_LIMIT or name.size == 0:
                return NULL
            if self.is_reserved(&name) or not is_text(&name) or not is_text(&value):
                return NULL
            if has_span(known, count, &name):
                return NULL     # the last value would be used
            known[count] = name
            count += 1
            out = put_property(out, <const char *>name.data, name.size, &value)
        return out

    cdef uint8_t *put_keys(
        self, uint8_t *out, const SentMessage *message
    ) noexcept nogil:
        """Write the keys, separated by blanks; NULL if Python has to decide."""
        cdef const uint8_t *p = message.system.data
        cdef const uint8_t *end = p + message.system.size
        cdef uint8_t *start = out
        cdef Field field
        cdef int64_t size = 0
        while p < end:
            p = read_field(p, end, &field)
            if p == NULL:
                return NULL
            if field.number != 2:
                continue
            size += field.bytes.size + 1
            if field.kind != BYTES or size > KEYS_LIMIT or not is_text(&field.bytes):
                return NULL
            if out == start:
                out = put_literal(out, b"KEYS\1")
            else:
                out = put_literal(out, b" ")
            out = put_text(out, <const char *>field.bytes.data, field.bytes.size)
        return out if out == start else put_literal(out, b"\2")

    cdef uint8_t *put_properties(self, const SentMessage *message) noexcept nogil:
        """Write all properties into `text`; NULL if Python has to decide."""
        cdef uint8_t *out = self.put_user_properties(self.text, message)
        if out == NULL:
            return NULL
        out = put_pair(out, b"UNIQ_KEY", &message.message_id)
        if message.tag.size:
            out = put_pair(out, b"TAGS", &message.tag)
        out = self.put_keys(out, message)
        if out == NULL:
            return NULL
        if message.group.size:
            out = put_pair(out, b"__SHARDINGKEY", &message.group)
        if message.due_ms >= 0:
            out = put_literal(out, b"TIMER_DELIVER_MS\1")
            out = put_literal(put_integer(out, message.due_ms), b"\2")
        if message.trace_context.size:
            out = put_pair(out, b"TRACE_CONTEXT", &message.trace_context)
        if message.born_host.size:
            out = put_pair(out, b"__BORNHOST", &message.born_host)
        return put_pair(out, b"PGROUP", &message.topic)

    # -- a call

    cdef Verdict serve(self, const Call *call, CallAnswer *answer) noexcept nogil:
        """Store the message of a call."""
        cdef SentMessage message
        cdef KnownTopic *topic
        cdef Frame frame
        cdef Conn conn
        cdef uint8_t[64] numbers
        cdef uint8_t *end
        cdef Verdict verdict = DECLINED
        if read_sent_message(call.message, call.size, &message):
            topic = self.find_topic(&message)
            if topic != NULL and self.is_plain(&message, topic):
                end = self.put_properties(&message)
                if end != NULL:
                    fill_fields(&frame, &message, numbers, self.choose_queue(
                        &message, topic.queue_count
                    ))
                    frame.fields[PROPERTIES].data = self.text
                    frame.fields[PROPERTIES].size = <int32_t>(end - self.text)
                    conn.ready.end = self.reply
                    conn.ready.limit = self.reply + REPLY_SIZE
                    conn.grow = has_room
                    verdict = self.natives.serve_call(
                        call.index, &call.signer, self.code, &frame, &conn
                    )
        if verdict != SERVED and verdict != HELD:
            self.declined += 1
            return DECLINED
        self.served += 1
        if is_any_queue(&message, topic.queue_count):
            self.turn += 1
        answer.watermark = conn.watermark
        self.build_answer(&message, conn.ready.end, answer)
        return verdict

    cdef void build_answer(
        self, const SentMessage *message, const uint8_t *end, CallAnswer *answer
    ) noexcept nogil:
        """Build the answer from the handler's reply, which ends at `end`."""
        cdef const uint8_t *p = self.reply + HEAD_SIZE
        cdef const uint8_t *name
        cdef Span handle
        cdef int64_t size, offset = 0
        handle.data = NULL
        handle.size = 0
        p += 4 + get32(p) + 4   # the remark, and the size of the fields
        while p < end:
            size = get16(p)
            name = p + 2
            p = name + size
            if is_literal(name, size, b"queueOffset"):
                read_decimal(p + 4, get32(p), 0, OFFSET_LIMIT, &offset)
            elif is_literal(name, size, b"recallHandle"):
                handle.data, handle.size = p + 4, get32(p)
            p += 4 + get32(p)
        answer.data = self.answer
        answer.size = put_send_response(
            self.answer, OK, &message.message_id, offset, &handle
        ) - self.answer

    cdef void refuse(
        self, const uint8_t *data, int64_t size, int32_t code, CallAnswer *answer
    ) noexcept nogil:
        """Build the answer to a message for which the disk or a slave was too late."""
        cdef const uint8_t *p = data
        cdef const uint8_t *end = data + size
        cdef Field field
        cdef Span message_id, nothing
        message_id.data = nothing.data = NULL
        message_id.size = nothing.size = 0
        while p != NULL and p < end:
            p = read_field(p, end, &field)
            if p != NULL and field.number == 2:     # the entry, and then its message id
                end = p
                p = field.bytes.data
                while p != NULL and p < end and message_id.data == NULL:
                    p = read_field(p, end, &field)
                    if p != NULL and field.number == 2:
                        message_id = field.bytes
                break
        answer.data = self.answer
        answer.size = put_send_response(
            self.answer,
            SLAVE_PERSISTENCE_TIMEOUT if code == FLUSH_SLAVE_TIMEOUT
            else MASTER_PERSISTENCE_TIMEOUT,
            &message_id, 0, &nothing,
        ) - self.answer


cdef void fill_fields(
    Frame *frame, const SentMessage *message, uint8_t *numbers, int64_t queue_id
) noexcept nogil:
    """Set the fields of request 310, except the properties; `numbers` has 64 bytes."""
    cdef uint8_t *end
    memset(frame, 0, sizeof(Frame))
    frame.serialize_type = BINARY_TYPE
    frame.body, frame.body_size = message.body.data, <uint32_t>message.body.size
    set_text(&frame.fields[GROUP], message.topic.data, message.topic.size)
    set_text(&frame.fields[TOPIC], message.topic.data, message.topic.size)
    set_text(&frame.fields[DEFAULT_TOPIC], b"", 0)
    set_text(&frame.fields[DEFAULT_QUEUES], b"0", 1)
    set_text(&frame.fields[FLAG], b"0", 1)
    set_text(&frame.fields[SYS_FLAG], b"1" if message.is_compressed else b"0", 1)
    end = put_integer(numbers, queue_id)
    set_text(&frame.fields[QUEUE_ID], numbers, end - numbers)
    numbers = end
    end = put_integer(numbers, message.born_ms)
    set_text(&frame.fields[BORN_MS], numbers, end - numbers)
