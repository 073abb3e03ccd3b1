from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.handlers.held_pulls cimport HeldPulls
from rmq._fastpath.handlers.pop_path cimport PopFront, PopPath
from rmq._fastpath.handlers.pop_reply cimport PopStamp
from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopPart
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.http2.call_paths cimport USER_LIMIT, Call, CallAnswer, CallPath
from rmq._fastpath.http2.message_encoder cimport Delivered, MessageEncoder
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.renewal_table cimport RenewalTable
from rmq._fastpath.reactor.grants cimport Signer
from rmq._fastpath.reactor.native cimport Frame, Verdict

cdef enum:
    VIEW_LIMIT = 65_536         # about 1 KiB each
    WAITING_LIMIT = 64          # maximum number of calls of a client that wait

cdef struct Receive:            # a request; spans are inside of it
    Span client_id
    Span group
    Span topic
    Span tags                   # the filter
    int64_t batch
    int64_t invisible_ms
    int64_t poll_ms             # 0: the request names no time
    bint is_renewed             # the messages stay invisible while the client lives

cdef struct WaitingCall:        # a receive that is held
    void *view
    uint32_t stream
    bint is_renewed
    int32_t user_size
    uint8_t user[USER_LIMIT]    # last: it is held up to `user_size`

cdef class WaitingCount:
    cdef public int64_t count

cdef class ReceiveView:
    cdef uint64_t token         # of its connection
    cdef bytes key              # in the table of names
    cdef bytes group
    cdef bytes topic
    cdef bytes tags
    cdef int64_t half_ms        # half of the client's time limit of requests
    cdef bint is_padded         # the digest of a body has eight digits
    cdef str client_id
    cdef object owner
    cdef object on_return
    cdef WaitingCount waiting   # calls of the client that wait, also of other views
    cdef readonly int64_t received  # messages

cdef class ReceiveCalls(CallPath):
    cdef dict views             # by key
    cdef NameTable names
    cdef MessageEncoder encoder
    cdef RenewalTable renewals
    cdef list handles           # of the answer; None: its messages are not renewed
    cdef uint8_t *records       # the records of one answer
    cdef int64_t record_room
    cdef uint8_t *data          # the answer
    cdef int64_t size
    cdef int64_t room
    cdef int32_t count          # messages of the answer
    cdef void *view             # for which the answer is written
    cdef PopFront front
    cdef HeldPulls held         # of the POPs; None before the first receive

    cdef Verdict serve_view(
        self, const Call *call, const Receive *receive, void *view,
        CallAnswer *answer,
    ) noexcept with gil
    cdef Verdict pop(
        self, const Call *call, ReceiveView view, const Receive *receive,
        int64_t poll_ms,
    ) except *
    cdef Verdict offer_request(
        self, PopPath path, const Call *call, Frame *frame, ReceiveView view,
        bint is_renewed,
    ) except *
    cdef void count_received(self, ReceiveView view) except *
    cdef void end_view(self, ReceiveView view)
    cdef PopPath find_path(self, uint32_t index)
    cdef bint put_answer(
        self, PopTable table, const PopAnswer *answer, const PopStamp *stamp
    ) except -1
    cdef bint put_part(
        self, PopTable table, const PopAnswer *answer, const PopPart *part,
        Delivered *delivered,
    ) except -1
    cdef bint put_run(
        self, const uint8_t *record, int64_t left, const Delivered *delivered
    ) except -1
    cdef uint8_t *reserve(self, int64_t size) except NULL
    cdef void end_message(self, uint8_t *end) noexcept nogil
    cdef void set_answer(self, CallAnswer *answer) noexcept nogil
