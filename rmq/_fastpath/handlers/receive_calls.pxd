from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.handlers.pop_path cimport PopPath
from rmq._fastpath.handlers.pop_reply cimport PopStamp
from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopPart
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.http2.call_paths cimport Call, CallAnswer, CallPath
from rmq._fastpath.http2.message_encoder cimport Delivered, MessageEncoder
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.renewal_table cimport RenewalTable
from rmq._fastpath.reactor.grants cimport Signer
from rmq._fastpath.reactor.native cimport Verdict

cdef enum:
    VIEW_LIMIT = 65_536         # about 1 KiB each

cdef struct Receive:            # a request; spans are inside of it
    Span client_id
    Span group
    Span topic
    Span tags                   # the filter
    int64_t batch
    int64_t invisible_ms
    int64_t poll_ms             # 0: the request names no time
    bint is_renewed             # the messages stay invisible while the client lives

cdef class ReceiveView:
    cdef bytes key              # in the table of names
    cdef bytes group
    cdef bytes topic
    cdef bytes tags
    cdef int64_t half_ms        # half of the client's time limit of requests
    cdef bint is_padded         # the digest of a body has eight digits
    cdef str client_id
    cdef object owner
    cdef object on_wait
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

    cdef Verdict serve_view(
        self, const Call *call, const Receive *receive, void *view,
        CallAnswer *answer,
    ) noexcept with gil
    cdef Verdict pop(
        self, uint32_t index, const Signer *signer, ReceiveView view, int64_t batch,
        int64_t invisible_ms, int64_t poll_ms, object waiter,
    ) except *
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
