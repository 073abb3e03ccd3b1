from libc.stdint cimport int32_t, int64_t

cdef enum:
    BOUND_COUNT = 9
    CELL_LIMIT = 512            # a power of two

cdef struct Cell:               # free while `total` is 0
    int32_t code
    int32_t response
    int64_t total
    int64_t sum_ns
    int64_t counts[BOUND_COUNT + 1]     # the last count is above all bounds

cdef class RpcTimes:
    cdef Cell *cells
    cdef int32_t used

    cdef Cell *find(self, int32_t code, int32_t response) noexcept nogil
    cdef void add(
        self,
        int32_t code,
        int32_t response,
        int64_t elapsed_ns,
        int64_t times,
    ) noexcept nogil
