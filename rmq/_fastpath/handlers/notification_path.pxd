from libc.stdint cimport int64_t

from rmq._fastpath.handlers.held_pulls cimport HeldPull, HeldPulls
from rmq._fastpath.handlers.pop_search cimport PopRequest
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class NotificationPath(NativeHandler):
    cdef PopTable table
    cdef readonly HeldPulls held    # requests that wait, `table.notices`
    cdef void *connections  # connections of the reactor, which outlives every handler
    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil
    cdef bint hold_request(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request
    ) except *
    cdef bint serve_waiting(self) noexcept with gil
    cdef void serve_waiter(self, HeldPull *waiter, bint is_due) noexcept
    cdef void send_reply(self, HeldPull *waiter, bint is_found) noexcept
