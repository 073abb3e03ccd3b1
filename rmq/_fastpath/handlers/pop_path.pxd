from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopRequest
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class PopPath(NativeHandler):
    cdef PopTable table
    cdef bint read_request(self, const Frame *frame, PopRequest *request) noexcept nogil
    cdef void *find_view(self, const Frame *frame) noexcept nogil
    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil
