from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.reactor.connections cimport LISTENER_LIMIT, Connections, Slot
from rmq._fastpath.reactor.grants cimport Grants, Signer
from rmq._fastpath.reactor.header_scan cimport RawHeader
from rmq._fastpath.reactor.held_replies cimport HeldReplies
from rmq._fastpath.reactor.native cimport (
    FIELD_LIMIT, REASON_LIMIT, Conn, Frame, Text, Verdict,
)
from rmq._fastpath.reactor.rpc_times cimport RpcTimes
from rmq._fastpath.reactor.template cimport VARYING_LIMIT, LearnedHeaders

cdef enum:
    DENSE_CODES = 1024          # codes below this number are looked up in an array
    NATIVE_LIMIT = 64           # compiled handlers of one process

cdef struct Native:
    void *handler               # borrowed; the table's list keeps it alive
    int32_t listener
    int32_t code
    int32_t field_count
    Text fields[FIELD_LIMIT]
    int32_t varying[VARYING_LIMIT]      # the fields that differ from frame to frame
    int32_t varying_count
    int64_t served
    int64_t declined[REASON_LIMIT]  # counts of declined frames by reason
    bint is_touched             # the handler served a frame in this poll
    int64_t answered            # frames answered in this poll; held frames do not count

cdef class NativeTable:
    cdef Connections connections
    cdef HeldReplies held
    cdef Grants grants          # None: no access control
    cdef list handlers
    cdef Native *natives
    cdef int32_t count
    # index in natives + 1, by code; NULL: no handler
    cdef int16_t *dense[LISTENER_LIMIT]

    cdef Verdict serve(
        self, uint32_t index, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef Verdict run_handler(
        self, uint32_t index, const Frame *frame, Native *native
    ) noexcept nogil
    cdef Verdict serve_call(
        self, uint32_t index, const Signer *signer, int32_t code, Frame *frame,
        Conn *conn,
    ) noexcept nogil
    cdef Native *find(self, int32_t listener, int32_t code) noexcept nogil
    cdef Native *read_header(
        self, Slot *slot, const uint8_t *p, int64_t size, Frame *frame
    ) noexcept nogil
    cdef void save_template(
        self,
        LearnedHeaders *known,
        const RawHeader *raw,
        const uint8_t *header,
        int64_t size,
        const Frame *frame,
        Native *native,
    ) noexcept nogil
    cdef bint end_of_poll(self, bint *is_urgent) noexcept nogil
    cdef bint take_turns(self, bint *is_urgent) noexcept nogil
    cdef void count_times(self, RpcTimes times, int64_t elapsed_ns) noexcept nogil
