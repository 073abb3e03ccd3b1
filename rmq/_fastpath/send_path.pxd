from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.append cimport RecordFields
from rmq._fastpath.native cimport Conn, Frame, NativeHandler, Verdict
from rmq._fastpath.send_table cimport SendTable

cdef struct Sending:            # one message on its way through `serve`
    RecordFields fields
    void *queue
    int32_t topic_flags         # system flags that the broker adds
    int64_t properties_size     # as they came
    int64_t end_offset          # of the record
    const uint8_t *unique_key
    int32_t unique_key_size
    bint waits                  # for the disk

cdef class SendPath(NativeHandler):
    cdef SendTable table
    cdef bint read_numbers(
        self, const Frame *frame, RecordFields *fields
    ) noexcept nogil
    cdef Verdict check(
        self, const Frame *frame, Conn *conn, Sending *message
    ) noexcept nogil
    cdef Verdict stage(
        self, const Frame *frame, Conn *conn, Sending *message
    ) noexcept nogil
    cdef void commit(self, Sending *message, int64_t tags_code) noexcept nogil
    cdef Verdict reply(
        self, const Frame *frame, Conn *conn, const Sending *message
    ) noexcept nogil
    cdef uint8_t *put_reply(
        self, uint8_t *out, const Frame *frame, const Sending *message
    ) noexcept nogil
    cdef uint8_t *put_message_id(self, uint8_t *out, int64_t offset) noexcept nogil
    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const Sending *message
    ) noexcept nogil
    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const Sending *message
    ) noexcept nogil
