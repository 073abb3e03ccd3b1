from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.log.claim cimport Claim
from rmq._fastpath.log.watermark cimport Watermark
from rmq._fastpath.reactor.connections cimport Connections
from rmq._fastpath.reactor.rpc_times cimport RpcTimes

cdef struct Held:
    Held *next
    Held *previous
    uint64_t token
    uint32_t stream             # stream of another protocol; 0: the reply is a frame
    int64_t watermark
    int64_t deadline_ms
    int64_t size
    int64_t timeout_size
    int32_t code                # code of the request
    int64_t begun_ns            # time at which the request arrived
    uint8_t *data               # the reply, then the time-out reply

cdef class HeldReplies:
    cdef Connections connections
    cdef RpcTimes rpc_times
    cdef Watermark watermark
    cdef Watermark replicated   # None: no reply waits for slaves
    cdef Claim claim            # None: there is no claim
    cdef int watermark_fd       # -1: no watermark is attached
    cdef readonly int64_t timeout_ms
    cdef bint is_flush_needed   # a reply of this poll waits for the disk
    cdef Held *head
    cdef Held *tail
    cdef readonly int64_t count
    cdef readonly int64_t earliest_ms   # a lower bound of all deadlines
    cdef readonly int64_t size

    cdef int32_t timeout_code(self, int64_t watermark) noexcept nogil
    cdef bint has_room(self, int64_t size) noexcept nogil
    cdef bint hold_reply(
        self,
        uint64_t token,
        const uint8_t *data,
        int64_t size,
        const uint8_t *timeout_data,
        int64_t timeout_size,
        int64_t watermark,
        int64_t deadline_ms,
        int32_t code,
        int64_t begun_ns,
        uint32_t stream,
    ) noexcept nogil
    cdef void hold_compiled(
        self,
        uint64_t token,
        const uint8_t *data,
        int64_t size,
        int64_t watermark,
        int32_t code,
        uint32_t stream,
    ) noexcept nogil
    cdef void demand_flush(self) noexcept nogil
    cdef void release_reached(self) noexcept nogil
    cdef list expire(self, int64_t now_ms)
    cdef void release_reply(self, Held *held, bint timed_out) noexcept nogil
    cdef void insert_reply(self, Held *held) noexcept nogil
    cdef void remove_reply(self, Held *held) noexcept nogil
