from rmq._fastpath.handlers.pop_search cimport PopRequest
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class NotificationPath(NativeHandler):
    cdef PopTable table
    cdef void *connections  # connections of the reactor, which outlives every handler
    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil
