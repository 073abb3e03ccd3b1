from libc.stdint cimport int64_t

from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPull, HeldPulls
from rmq._fastpath.handlers.pop_reply cimport PopStamp
from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopRequest
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

# writes the reply of another protocol; False: Python has to serve the POP
ctypedef bint (*PutReply)(
    void *front, PopTable table, const PopAnswer *answer, const PopStamp *stamp
) noexcept

cdef class PopPath(NativeHandler):
    cdef readonly PopTable table
    cdef readonly HeldPulls held    # the POPs that wait
    cdef PutReply put_reply     # writes the current reply; NULL for remoting
    cdef void *front            # its first argument
    cdef object waiter          # call that waits if the POP finds nothing, or None
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
    cdef Verdict keep_call(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request,
        const PopAnswer *answer,
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
    ) except *
