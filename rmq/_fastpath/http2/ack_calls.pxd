from libc.stdint cimport uint8_t, uint32_t

from rmq._fastpath.http2.call_answers cimport AckedEntry
from rmq._fastpath.http2.call_paths cimport CallPath
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.reactor.native cimport Verdict

cdef class AckCalls(CallPath):
    cdef uint8_t *answer        # of the call

    cdef Verdict ack(
        self, uint32_t index, const Span *group, const Span *topic,
        const AckedEntry *entry,
    ) noexcept nogil
