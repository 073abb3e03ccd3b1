from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

cdef struct Held:
    Held *next
    Held *previous
    uint64_t token
    int64_t watermark
    int64_t deadline_ms
    int64_t size
    int64_t timeout_size
    int32_t code                # of the request
    int64_t begun_ns            # when it arrived
    uint8_t *data               # the reply, then the time-out reply

cdef class HeldReplies:
    cdef Held *head
    cdef Held *tail
    cdef readonly int64_t count
    cdef readonly int64_t size

    cdef bint has_room(self, int64_t size) noexcept nogil
    cdef bint keep(
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
    ) noexcept nogil
    cdef void insert(self, Held *held) noexcept nogil
    cdef void forget(self, Held *held) noexcept nogil
