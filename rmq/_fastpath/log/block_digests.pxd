from libc.stdint cimport int64_t, uint8_t, uint32_t

cdef enum:
    BLOCK_SIZE = 65536

cdef class BlockDigests:
    cdef readonly int64_t file_size
    cdef readonly int64_t count     # number of blocks of the file
    # number of blocks, from the first on, that have a digest
    cdef readonly int64_t sealed
    cdef uint32_t *digests
    # time of the last check that found a block right; 0: never
    cdef uint32_t *checked_s

    cdef int check_data(self, int64_t number, int64_t size) except -1
    cdef int64_t size_of(self, int64_t number) noexcept nogil
    cdef bint is_fresh(self, int64_t number, uint32_t now_s) noexcept nogil
    cdef bint is_bad(self, int64_t number) noexcept nogil
    cdef void record_bad(self, int64_t number) noexcept nogil
    cdef bint check_block(
        self, int64_t number, const uint8_t *data, uint32_t now_s
    ) noexcept nogil

cdef uint32_t coarse_now_s() noexcept nogil
