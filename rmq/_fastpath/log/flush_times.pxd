from libc.stdint cimport int64_t

cdef enum:
    FLUSH_BOUND_COUNT = 11

cdef class FlushTimes:
    # the last count is above all bounds
    cdef int64_t counts_by_bound[FLUSH_BOUND_COUNT + 1]
    cdef int64_t sum_ns

    cdef void add(self, int64_t elapsed_ns) noexcept nogil
