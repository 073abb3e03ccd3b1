from libc.stdint cimport int64_t

from rmq._fastpath.handlers.pop_search cimport PopAnswer
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.reactor.native cimport Conn, Frame

cdef enum:
    POP_ROOM = 8192             # of a reply besides its records


cdef void put_popped(
    PopTable table, const Frame *frame, Conn *conn, const PopAnswer *answer,
    int64_t invisible_ms, int64_t pop_ms, int64_t revive_queue,
) noexcept nogil
