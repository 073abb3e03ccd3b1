from libc.stdint cimport int64_t

cdef extern from "<semaphore.h>":
    ctypedef struct sem_t:
        pass

cdef enum:
    SUBSCRIBER_LIMIT = 8    # reactor, store's waiters, a replica; more is a leak

cdef class Watermark:
    cdef int64_t _value
    cdef int _descriptors[SUBSCRIBER_LIMIT]     # plus one; 0: free
    cdef sem_t _demand
    cdef int _is_demanded       # and nobody has taken it
    cdef bint _is_over
    cdef int64_t load(self) noexcept nogil
    cdef bint move(self, int64_t value) noexcept nogil
    cdef void want(self) noexcept nogil
