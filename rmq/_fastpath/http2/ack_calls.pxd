from libc.stdint cimport uint8_t

from rmq._fastpath.http2.call_answers cimport AckedEntry
from rmq._fastpath.http2.call_paths cimport Call, CallPath
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.renewal_table cimport RenewalTable
from rmq._fastpath.reactor.native cimport Conn, Frame, Verdict

cdef class AckCalls(CallPath):
    cdef uint8_t *answer        # bytes of the call's answer
    cdef RenewalTable renewals

    cdef Verdict ack(
        self, const Call *call, const Span *group, const Span *topic,
        const AckedEntry *entry,
    ) noexcept nogil
    cdef Verdict ack_renewed(
        self, const Call *call, const Span *text, const Frame *frame, Conn *conn
    ) noexcept with gil
