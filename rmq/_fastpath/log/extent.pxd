from libc.stdint cimport int64_t, uint8_t

cdef class Extent:
    cdef readonly str path
    cdef readonly int64_t size
    cdef readonly int64_t base_offset
    cdef readonly int64_t holders
    cdef uint8_t *address
    cdef bint owns_memory           # `address` was taken from malloc
    cdef object owner               # owner of the bytes, kept alive

    cdef int check_range(self, int64_t position, int64_t size, int64_t limit) except -1

cdef Extent new_extent(
    str path, uint8_t *address, int64_t base_offset, int64_t size, object owner
)
