from libc.stdint cimport int64_t, uint8_t

cdef class MappedFile:
    cdef readonly str path
    cdef readonly int64_t size
    cdef readonly int64_t base_offset
    cdef readonly int fd
    cdef readonly int64_t allocated
    cdef readonly int64_t flushed_position
    cdef readonly int64_t holders
    cdef readonly bint writable
    cdef int64_t _write_position
    cdef bint is_open               # the descriptor is ours to close
    cdef uint8_t *address
    cdef readonly int64_t committed_position
    cdef Py_buffer staging
    cdef uint8_t *staged            # NULL: what is written goes to the file at once

    cdef int _check(self, int64_t position, int64_t size, int64_t limit) except -1
    cdef int _check_write(
        self, int64_t position, int64_t size, int64_t limit
    ) except -1
    cdef bint has_pages(self, int64_t position, int64_t size) noexcept nogil
    cdef int store(self, int64_t position, const uint8_t *data, int64_t size) except -1
    cdef int store_pwrite(
        self, int64_t position, const uint8_t *data, int64_t size
    ) except -1
