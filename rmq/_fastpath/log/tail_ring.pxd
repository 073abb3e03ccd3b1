from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.log.extent cimport Extent

cdef enum:
    # the ring's size is a multiple of this, the largest page size in use
    RING_PAGE = 64 * 1024
    RING_BLOCK = 4096           # unit of direct writes
    RING_PARTS = 8              # an append fits into 1 / RING_PARTS of the ring

cdef class TailRing:
    cdef readonly str path
    cdef readonly int64_t size
    cdef readonly int64_t margin        # maximum bytes of an append
    cdef readonly int64_t begin         # offset of the run's first byte
    cdef int fd
    cdef uint8_t *head
    cdef uint8_t *address  # address of the ring, which is mapped twice in a row
    cdef int64_t _end                   # atomic
    cdef int64_t prepared_at            # *appended* at the last `prepare_pages`

    cdef int create_file(
        self, int64_t size, int64_t generation, int64_t begin
    ) except -1
    cdef int open_existing(self, int64_t generation) except -1
    cdef int map_file(self, int64_t size) except -1
    cdef int64_t load_appended(self) noexcept nogil
    cdef int64_t load_written(self) noexcept nogil
    cdef void store_written(self, int64_t offset) noexcept nogil
    cdef int64_t load_floor(self) noexcept nogil
    cdef int64_t load_safe_floor(self) noexcept nogil
    cdef int64_t free_bytes(self) noexcept nogil
    cdef uint8_t *address_of(self, int64_t offset) noexcept nogil
    cdef void append(self, const uint8_t *data, int64_t size) noexcept nogil
    cdef void append_zeros(self, int64_t size) noexcept nogil
    cdef void advance_end(self, int64_t size) noexcept nogil
    cdef Extent view(self, int64_t offset, int64_t end)
    cdef Extent copy(self, int64_t offset, int64_t end)
