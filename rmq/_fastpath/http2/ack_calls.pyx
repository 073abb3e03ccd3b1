"""AckCalls: AckMessage, as a request 200051 for each message.

    request     1 Resource group, 2 Resource topic, 3 an entry for each message
    entry       1 message_id, 2 receipt_handle
    handle      start, time, invisible time, revive queue, flag, broker, queue, offset,
                physical offset, separated by blanks

It serves handles of the topic itself (flag 0). If the invisible time of a handle is a
minute, the broker may renew its message: then the table of renewals is asked. It
removes the message; but Python acks a message that was renewed, and has another handle.
If the compiled acks decline one of the messages, Python serves the whole call: an ack
that is repeated succeeds again.
"""

cimport cython
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memchr, memset

from rmq._fastpath.bytes.ascii cimport is_literal
from rmq._fastpath.http2.call_answers cimport AckedEntry, put_ack_response
from rmq._fastpath.http2.call_paths cimport Call, CallAnswer, CallPath, set_text
from rmq._fastpath.http2.proto_wire cimport BYTES, Field, Span, read_field
from rmq._fastpath.http2.renewal_table cimport RenewalTable
from rmq._fastpath.http2.sent_message cimport is_text, read_resource
from rmq._fastpath.reactor.native cimport (
    DECLINED, REPLY_ROOM, SERVED, Conn, Frame, Verdict,
)

cdef enum:                      # fields of request 200051, as its handler names them
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    EXTRA_INFO = 3
    OFFSET = 4

cdef enum:
    BINARY_TYPE = 1             # serialize type of a header
    ENTRY_LIMIT = 64            # maximum messages of a call
    REQUEST_LIMIT = 8 * 1024    # maximum bytes of a request; the answer repeats them
    ANSWER_SIZE = REQUEST_LIMIT + (ENTRY_LIMIT + 1) * 64
    HANDLE_FIELDS = 9
    INVISIBLE = 2
    FLAG = 4
    QUEUE_FIELD = 6
    OFFSET_FIELD = 7


cdef bint split_handle(const Span *handle, Span *fields) noexcept nogil:
    """Find the fields of a receipt handle; False if it does not have nine fields."""
    cdef const uint8_t *p = handle.data
    cdef const uint8_t *end = p + handle.size
    cdef const uint8_t *blank
    cdef int i
    for i in range(HANDLE_FIELDS):
        blank = <const uint8_t *>memchr(p, 32, end - p)
        if (blank == NULL) != (i == HANDLE_FIELDS - 1):
            return False
        fields[i].data = p
        fields[i].size = (end if blank == NULL else blank) - p
        if fields[i].size == 0:
            return False
        p = end if blank == NULL else blank + 1
    return True


cdef bint read_entry(const Span *text, AckedEntry *entry) noexcept nogil:
    """Read an entry; False if it is not plain."""
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef Field field
    memset(entry, 0, sizeof(AckedEntry))
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.kind != BYTES or field.number > 2:
            return False
        if field.number == 1:
            entry.message_id = field.bytes
        else:
            entry.handle = field.bytes
    return entry.handle.size > 0 and is_text(&entry.handle) and (
        is_text(&entry.message_id)
    )


cdef int read_acks(
    const uint8_t *p, int64_t size, Span *group, Span *topic, AckedEntry *entries
) noexcept nogil:
    """Read a request; return the number of its entries, 0 if it is not plain."""
    cdef const uint8_t *end = p + size
    cdef Field field
    cdef int count = 0
    group.data = topic.data = NULL
    while p < end:
        p = read_field(p, end, &field)
        if p == NULL or field.kind != BYTES or field.number > 3:
            return 0
        if field.number == 1:
            if group.data != NULL or not read_resource(&field.bytes, group):
                return 0
        elif field.number == 2:
            if topic.data != NULL or not read_resource(&field.bytes, topic):
                return 0
        elif count == ENTRY_LIMIT or not read_entry(&field.bytes, &entries[count]):
            return 0
        else:
            count += 1
    return 0 if group.data == NULL or topic.data == NULL else count


@cython.final
cdef class AckCalls(CallPath):
    """Serves AckMessage for checkpoints in memory."""

    def __cinit__(self):
        self.answer = <uint8_t *>malloc(ANSWER_SIZE)
        if self.answer == NULL:
            raise MemoryError

    def __init__(self, int32_t code, RenewalTable renewals not None):
        self.code, self.renewals = code, renewals

    def __dealloc__(self):
        free(self.answer)

    cdef Verdict serve(self, const Call *call, CallAnswer *answer) noexcept nogil:
        """Ack the messages of a call."""
        cdef AckedEntry[ENTRY_LIMIT] entries
        cdef Span group, topic
        cdef int i, count = 0
        if call.size <= REQUEST_LIMIT:
            count = read_acks(call.message, call.size, &group, &topic, entries)
        for i in range(count):
            if self.ack(call, &group, &topic, &entries[i]) != SERVED:
                count = 0
                break
        if count == 0:
            self.declined += 1
            return DECLINED
        self.served += 1
        answer.data = self.answer
        answer.size = put_ack_response(self.answer, entries, count) - self.answer
        return SERVED

    cdef Verdict ack(
        self, const Call *call, const Span *group, const Span *topic,
        const AckedEntry *entry,
    ) noexcept nogil:
        """Pass one message to the compiled acks."""
        cdef Span[HANDLE_FIELDS] fields
        cdef uint8_t[REPLY_ROOM] reply
        cdef Frame frame
        cdef Conn conn
        if not split_handle(&entry.handle, fields):
            return DECLINED
        if not is_literal(fields[FLAG].data, fields[FLAG].size, b"0"):
            return DECLINED
        memset(&frame, 0, sizeof(Frame))
        frame.serialize_type = BINARY_TYPE
        set_text(&frame.fields[GROUP], group.data, group.size)
        set_text(&frame.fields[TOPIC], topic.data, topic.size)
        set_text(
            &frame.fields[QUEUE_ID], fields[QUEUE_FIELD].data, fields[QUEUE_FIELD].size
        )
        set_text(&frame.fields[EXTRA_INFO], entry.handle.data, entry.handle.size)
        set_text(
            &frame.fields[OFFSET], fields[OFFSET_FIELD].data, fields[OFFSET_FIELD].size
        )
        conn.ready.end = reply
        conn.ready.limit = reply + REPLY_ROOM
        if is_literal(fields[INVISIBLE].data, fields[INVISIBLE].size, b"60000"):
            return self.ack_renewed(call, &entry.handle, &frame, &conn)
        return self.natives.serve_call(
            call.index, &call.signer, self.code, &frame, &conn
        )

    cdef Verdict ack_renewed(
        self, const Call *call, const Span *text, const Frame *frame, Conn *conn
    ) noexcept with gil:
        """Ack a message that the broker may renew, and renew it no more."""
        cdef str handle = PyUnicode_DecodeUTF8(
            <const char *>text.data, text.size, NULL
        )
        cdef Verdict verdict
        if self.renewals.is_changed(handle):
            return DECLINED
        verdict = self.natives.serve_call(
            call.index, &call.signer, self.code, frame, conn
        )
        if verdict == SERVED and handle in self.renewals.entries:
            self.renewals.remove(handle)
        return verdict
