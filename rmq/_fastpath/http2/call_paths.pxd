from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.reactor.native cimport Text, Verdict
from rmq._fastpath.reactor.native_table cimport NativeTable

cdef struct CallAnswer:         # valid until the next call is served
    const uint8_t *data
    int64_t size
    int64_t watermark           # with HELD, as in `Conn`

cdef class CallPath:
    cdef readonly int32_t code  # of the request that a call becomes
    cdef readonly int64_t served
    cdef readonly int64_t declined
    cdef NativeTable natives    # None before `GrpcWire.register`

    cdef Verdict serve(
        self, uint32_t index, const uint8_t *p, int64_t size, CallAnswer *answer
    ) noexcept nogil
    cdef void refuse(
        self, const uint8_t *data, int64_t size, int32_t code, CallAnswer *answer
    ) noexcept nogil


cdef inline void set_text(Text *text, const uint8_t *data, int64_t size) noexcept nogil:
    """Set the value of a field of a request."""
    text.data, text.size, text.escaped = data, <int32_t>size, False
