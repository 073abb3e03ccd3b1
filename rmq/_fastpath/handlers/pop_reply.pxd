from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.pop_search cimport PopAnswer
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.native cimport Conn, Frame

cdef enum:
    POP_ROOM = 8192             # maximum bytes of a reply in addition to its records
    HANDLE_ROOM = 192  # maximum bytes of a handle in addition to the broker's name

cdef struct PopStamp:           # the numbers of a POP in its reply and in handles
    int64_t pop_ms
    int64_t invisible_ms
    int32_t revive_queue


cdef bint put_popped(
    PopTable table, PopView view, const Frame *frame, Conn *conn,
    const PopAnswer *answer, const PopStamp *stamp,
) noexcept
