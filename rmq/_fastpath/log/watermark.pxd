from libc.stdint cimport int64_t

from rmq._fastpath.log.gate cimport Gate

cdef enum:
    # for the reactor, waiters of the store, a slave; more would be a leak
    SUBSCRIBER_LIMIT = 8

cdef class Watermark:
    cdef int64_t _value
    cdef int _descriptors[SUBSCRIBER_LIMIT]     # descriptors plus one; 0: free
    cdef Gate _request          # open: an advance was requested
    cdef bint _is_over
    # the watermark that is the minimum of this one and another; or None
    cdef Watermark _minimum
    # `_first` and `_second`: the watermarks whose minimum this is; or None
    cdef Watermark _first
    cdef Watermark _second
    cdef int64_t load(self) noexcept nogil
    cpdef bint advance(self, int64_t value) noexcept nogil
    cdef void update_minimum(self) noexcept nogil
    cpdef void request_advance(self) noexcept nogil
    cdef bint wait(self, int64_t limit_ns) noexcept nogil
