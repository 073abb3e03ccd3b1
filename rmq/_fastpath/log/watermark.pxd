from libc.stdint cimport int64_t

from rmq._fastpath.log.gate cimport Gate

cdef enum:
    SUBSCRIBER_LIMIT = 8    # reactor, store's waiters, a replica; more is a leak

cdef class Watermark:
    cdef int64_t _value
    cdef int _descriptors[SUBSCRIBER_LIMIT]     # plus one; 0: free
    cdef Gate _request          # open: somebody wants more
    cdef bint _is_over
    cdef Watermark _minimum     # the lesser of this one and another, if there is one
    cdef Watermark _first       # what this one is the lesser of, if it is
    cdef Watermark _second
    cdef int64_t load(self) noexcept nogil
    cpdef bint advance(self, int64_t value) noexcept nogil
    cdef void update_minimum(self) noexcept nogil
    cpdef void request_advance(self) noexcept nogil
    cdef bint wait(self, int64_t limit_ns) noexcept nogil
