from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.http2.proto_wire cimport Span

cdef enum Code:                 # codes of a Status
    OK = 20_000
    MESSAGE_NOT_FOUND = 40_401
    MASTER_PERSISTENCE_TIMEOUT = 50_401
    SLAVE_PERSISTENCE_TIMEOUT = 50_402

cdef struct AckedEntry:
    Span message_id
    Span handle

cdef uint8_t *put_status(uint8_t *out, Code code, int number=*) noexcept nogil
cdef uint8_t *put_ack_response(
    uint8_t *out, const AckedEntry *entries, int count
) noexcept nogil
cdef uint8_t *put_send_response(
    uint8_t *out, Code code, const Span *message_id, int64_t offset,
    const Span *recall_handle,
) noexcept nogil
