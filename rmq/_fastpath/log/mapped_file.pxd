from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.log.block_digests cimport BlockDigests
from rmq._fastpath.log.extent cimport Extent

cdef enum BlockCheck:
    BLOCKS_RIGHT
    BLOCKS_NOT_RESIDENT
    BLOCKS_BAD

cdef enum BlockPages:
    PAGES_UNKNOWN       # a block with pages that only the disk has is not checked
    PAGES_IN_MEMORY     # the caller has found all pages of the blocks in memory
    PAGES_READ          # pages that only the disk has are read

cdef class MappedFile(Extent):
    cdef readonly int fd
    cdef readonly int64_t allocated
    cdef readonly int64_t flushed_position
    cdef readonly bint writable
    cdef int64_t _write_position
    cdef bint is_open               # this object closes the descriptor
    # digests of a file of the log; None: no block is checked
    cdef public BlockDigests digests

    cdef int check_write(
        self, int64_t position, int64_t size, int64_t limit
    ) except -1
    cdef BlockCheck check_blocks(
        self, int64_t position, int64_t size, BlockPages pages
    ) noexcept nogil
    cdef bint has_fresh_blocks(self, int64_t position, int64_t size) noexcept nogil
    cdef bint has_pages(self, int64_t position, int64_t size) noexcept nogil
    cdef int store(self, int64_t position, const uint8_t *data, int64_t size) except -1
    cdef int store_pwrite(
        self, int64_t position, const uint8_t *data, int64_t size
    ) except -1
