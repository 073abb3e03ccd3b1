from rmq._fastpath.handlers.pop_search cimport PopRequest
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class PopPath(NativeHandler):
    cdef readonly PopTable table
    cdef void *connections      # of the reactor, which outlives every handler
    cdef bint read_request(self, const Frame *frame, PopRequest *request) noexcept nogil
    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request,
        bint has_waited,
    ) noexcept with gil
    cdef Verdict hold_request(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request
    ) except *
