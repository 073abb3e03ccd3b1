from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.log.watermark cimport Watermark

cdef class Claim:
    cdef uint8_t[::1] _page
    cdef uint8_t _slot[76]          # the newest claim
    cdef char _lock                 # of the slot
    cdef bytes _boot
    cdef Watermark durable_mark
    cdef Watermark confirmed_mark   # None: there is no group
    cdef readonly bint is_same_boot
    cdef readonly bint is_begun
    cdef int64_t get(self, int at) noexcept nogil
    cdef int64_t confirmed_until(self, int64_t written) noexcept nogil
    cdef void store(self, int64_t written) noexcept nogil
    cdef void put_slot(self) noexcept nogil
    cdef void lower_slot(self, int64_t end) noexcept nogil
    cpdef void confirm(self) noexcept nogil
