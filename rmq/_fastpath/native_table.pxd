from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.native cimport FIELD_LIMIT, Frame, REASON_LIMIT, Text
from rmq._fastpath.rpc_times cimport RpcTimes
from rmq._fastpath.template cimport HOLE_LIMIT, Template

cdef enum:
    LISTENER_LIMIT = 8
    DENSE_CODES = 1024          # codes below are looked up in an array
    NATIVE_LIMIT = 64           # compiled handlers of one process
    TEMPLATES_PER_CONNECTION = 4

cdef struct LearnedHeaders:     # of one connection
    Template *templates[TEMPLATES_PER_CONNECTION]
    uint32_t learned            # so far: the oldest makes room
    uint64_t matched            # headers that a template has read

cdef struct Native:
    void *handler               # borrowed; the table's list keeps it alive
    int32_t listener
    int32_t code
    int32_t field_count
    Text fields[FIELD_LIMIT]
    int32_t varying[HOLE_LIMIT]     # the fields that differ from frame to frame
    int32_t varying_count
    int64_t served
    int64_t declined[REASON_LIMIT]  # by reason
    bint is_touched             # served a frame in this poll
    int64_t answered            # frames served in this poll, without those held

cdef class NativeTable:
    cdef list handlers
    cdef Native *natives
    cdef int32_t count
    cdef int16_t *dense[LISTENER_LIMIT]     # code to index in natives + 1; NULL: none

    cdef bint serves(self, int32_t listener) noexcept nogil
    cdef Native *find(self, int32_t listener, int32_t code) noexcept nogil
    cdef Native *read_header(
        self,
        int32_t listener,
        LearnedHeaders *known,
        const uint8_t *header,
        int64_t size,
        uint8_t kind,
        Frame *frame,
    ) noexcept nogil
    cdef bint end_of_drain(self, bint *is_urgent) noexcept nogil
    cdef void note_times(self, RpcTimes times, int64_t elapsed_ns) noexcept nogil

cdef void forget_headers(LearnedHeaders *known) noexcept nogil
