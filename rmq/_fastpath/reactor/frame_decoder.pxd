from libc.stdint cimport int64_t, uint32_t

from rmq._fastpath.reactor.connections cimport Connections, Slot
from rmq._fastpath.reactor.native_table cimport NativeTable

cdef class SocketFrameDecoder:
    cdef Connections connections
    cdef NativeTable natives
    cdef int64_t max_frame_size
    # fields of the current poll
    cdef int64_t handed_limit   # limit of frames for Python
    cdef int64_t handed_bytes   # size of the frames for Python
    cdef bint is_urgent         # Python must be notified at once
    # sums
    cdef int64_t frames
    cdef int64_t bytes_in
    cdef int64_t declined       # number of frames handed to Python

    cdef void receive(self, uint32_t index) noexcept nogil
    cdef void receive_encrypted(self, uint32_t index, int64_t until_ns) noexcept nogil
    cdef bint receive_records(self, uint32_t index, int64_t *total) noexcept nogil
    cdef bint reserve(self, uint32_t index, int64_t size) noexcept nogil
    cdef void adapt_receive_size(self, Slot *slot, int64_t total) noexcept nogil
    cdef void cut_deferred(self, int64_t until_ns) noexcept nogil
    cdef void cut_frames(self, uint32_t index) noexcept nogil
    cdef bint begins_http2(self, const Slot *slot) noexcept nogil
    cdef int64_t frame_size(self, uint32_t index) noexcept nogil
