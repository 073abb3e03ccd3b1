from libc.stdint cimport int64_t

from rmq._fastpath.handlers.ack_path cimport AckPath
from rmq._fastpath.handlers.pop_table cimport PopTable

cdef class InvisibleTimePath(AckPath):
    cdef PopTable pops
    cdef int64_t move_message(
        self, void *found, int i, int64_t invisible_ms, int64_t revive_queue,
        bint suspend,
    ) noexcept with gil
