from libc.stdint cimport int64_t

from rmq._fastpath.log.gate cimport Gate

cdef enum:
    SUBSCRIBER_LIMIT = 8    # reactor, waiters of the store, a slave; more is a leak

cdef class Watermark:
    cdef int64_t _value
    cdef int _descriptors[SUBSCRIBER_LIMIT]     # plus one; 0: free
    cdef Gate _request          # open: an advance was requested
    cdef bint _is_over
    cdef Watermark _minimum     # the watermark with the minimum of this one and another
    cdef Watermark _first       # the two whose minimum this one has; or None
    cdef Watermark _second
    cdef int64_t load(self) noexcept nogil
    cpdef bint advance(self, int64_t value) noexcept nogil
    cdef void update_minimum(self) noexcept nogil
    cpdef void request_advance(self) noexcept nogil
    cdef bint wait(self, int64_t limit_ns) noexcept nogil
