from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    PREFIX_LIMIT = 44           # IPv6 address, process id and instance, in hexadecimal

cdef class UniqueKeys:
    cdef object now_ms
    cdef uint8_t prefix[PREFIX_LIMIT]
    cdef int32_t prefix_size
    cdef readonly int32_t size          # bytes of a key
    cdef uint32_t counter
    cdef int64_t month_start_ms
    cdef int64_t month_end_ms

    cdef int write_next(self, uint8_t *out) except -1
    cdef bint write(self, uint8_t *out, int64_t now_ms) noexcept nogil
    cdef bint start_month(self, int64_t now_ms) noexcept nogil
