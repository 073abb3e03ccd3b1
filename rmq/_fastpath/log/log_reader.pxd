from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.log.extent cimport Extent
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.tail_ring cimport TailRing

cdef class LogReader:
    cdef list files  # files of the log, in order; their owner changes the list
    cdef public TailRing ring       # None: the files have all bytes
    # called with the offset of a bad block, in any thread
    cdef public object on_bad_block
    cdef int64_t ring_floor(self) noexcept nogil
    cdef Extent load_from_file(self, MappedFile file, int64_t offset, int64_t end)
    cdef const uint8_t *address_of(self, int64_t offset) noexcept nogil
    cdef void *file_at(self, int64_t offset) noexcept with gil
    cdef uint8_t *copy(self, uint8_t *out, int64_t offset, int64_t size) noexcept nogil
