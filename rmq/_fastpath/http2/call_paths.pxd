from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.reactor.grants cimport Signer
from rmq._fastpath.reactor.native cimport Text, Verdict
from rmq._fastpath.reactor.native_table cimport NativeTable

cdef enum:
    USER_LIMIT = 256            # maximum bytes of the name of a user

cdef struct Call:               # valid while it is served
    uint32_t index              # number of the connection
    uint32_t stream             # id of the stream
    const uint8_t *message
    int64_t size
    const uint8_t *metadata     # as `request_head.pyx` has it
    int64_t metadata_size
    Signer signer               # NULL without access control

cdef struct CallAnswer:         # valid until the next call is served
    const uint8_t *data
    int64_t size
    int64_t watermark           # for HELD, as in `Conn`
    bint is_framed              # it has several messages, each with its prefix

cdef class CallPath:
    cdef readonly int32_t code  # code of the request that a call becomes
    cdef readonly int64_t served
    cdef readonly int64_t declined
    cdef NativeTable natives    # None before `GrpcWire.register`
    cdef object wire            # the GrpcWire; None before
    cdef bint needs_room        # no call is served while an answer waits for the peer

    cdef Verdict serve(self, const Call *call, CallAnswer *answer) noexcept nogil
    cdef void drop_call(self, uint64_t token, uint32_t stream) noexcept nogil
    cdef void refuse(
        self, const uint8_t *data, int64_t size, int32_t code, CallAnswer *answer
    ) noexcept nogil

cdef void read_signer(Call *call) noexcept nogil


cdef inline void set_text(Text *text, const uint8_t *data, int64_t size) noexcept nogil:
    """Set the value of a field of a request."""
    text.data, text.size, text.escaped = data, <int32_t>size, False
