from libc.stdint cimport int64_t

cdef enum:
    SUBSCRIBER_LIMIT = 8    # the reactor, the store's waiters, a replica; more is a leak

cdef class Watermark:
    cdef int64_t _value
    cdef int _descriptors[SUBSCRIBER_LIMIT]     # plus one; 0: free
    cdef int64_t load(self) noexcept nogil
    cdef bint move(self, int64_t value) noexcept nogil
