from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.append cimport RecordFields
from rmq._fastpath.native cimport Conn, Frame, NativeHandler
from rmq._fastpath.send_table cimport SendTable

cdef struct Sent:               # what a reply says
    int64_t offset
    int64_t queue_offset
    int32_t queue_id
    const uint8_t *unique_key
    int32_t unique_key_size

cdef class SendPath(NativeHandler):
    cdef SendTable table
    cdef bint read_numbers(
        self, const Frame *frame, int32_t *queue_id, RecordFields *fields
    ) noexcept nogil
    cdef uint8_t *put_reply(
        self, uint8_t *out, const Frame *frame, const Sent *sent
    ) noexcept nogil
    cdef uint8_t *put_message_id(self, uint8_t *out, int64_t offset) noexcept nogil
    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const Sent *sent
    ) noexcept nogil
    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const Sent *sent
    ) noexcept nogil
