from libc.stdint cimport int64_t

from rmq._fastpath.handlers.held_pulls cimport HeldFront, HeldGroup, HeldPull, HeldPulls
from rmq._fastpath.handlers.pop_reply cimport PopStamp
from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopRequest
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

# writes the reply of another protocol; False: Python has to serve the POP
ctypedef bint (*PutReply)(
    void *owner, PopTable table, const PopAnswer *answer, const PopStamp *stamp
) noexcept

cdef struct PopFront:           # another protocol whose calls are POPs
    HeldFront held              # first: a HeldFront is cast to its PopFront
    PutReply put_reply

cdef class PopPath(NativeHandler):
    cdef readonly PopTable table
    cdef readonly HeldPulls held    # the POPs that wait
    cdef PopFront *front        # protocol of the current POP; NULL: remoting
    cdef object front_owner     # keeps the owner of the fronts of calls alive
    cdef void *connections      # table of the reactor, which outlives every handler
    cdef bint read_request(self, const Frame *frame, PopRequest *request) noexcept nogil
    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil
    cdef Verdict send_reply(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request,
        const PopAnswer *answer,
    ) except *
    cdef Verdict write_reply(
        self, const Frame *frame, Conn *conn, PopView view, const PopAnswer *answer,
        const PopStamp *stamp,
    ) except *
    cdef Verdict hold_request(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request,
        const PopAnswer *answer,
    ) except *
    cdef HeldGroup *find_group(self, PopView view, int64_t queue_id) noexcept
    cdef int skip_messages(self, HeldGroup *group, const PopAnswer *answer) except -1
    cdef bint serve_waiting(self, int64_t now_ms) noexcept with gil
    cdef bint serve_waiter(
        self, HeldPull *waiter, int64_t now_ms, bint is_due
    ) noexcept
    cdef Verdict pop_for(
        self, HeldPull *waiter, int64_t now_ms, bint is_due
    ) noexcept
    cdef void send_waited(self, const HeldPull *waiter, const Conn *conn) noexcept
