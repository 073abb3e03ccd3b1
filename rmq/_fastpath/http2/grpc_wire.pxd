from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.http2.call_paths cimport CallAnswer
from rmq._fastpath.http2.frames cimport Http2
from rmq._fastpath.http2.grpc_methods cimport METHOD_LIMIT
from rmq._fastpath.http2.peers cimport Peer
from rmq._fastpath.http2.streams cimport Stream
from rmq._fastpath.reactor.held_replies cimport HeldReplies
from rmq._fastpath.reactor.native_table cimport NativeTable

cpdef enum GrpcEvent:
    CALL = 0                    # a whole request
    MESSAGE = 1                 # one of several messages of a call
    HALF_CLOSED = 2             # the last of several messages has come
    ENDED = 3                   # the stream of a call is gone
    ROOM = 4                    # the bytes that waited for the peer are sent
    RETURNED_CALL = 5           # compiled code does not hold a call any more

cdef class GrpcWire(Http2):
    cdef object events          # deque of tuples for Python
    cdef readonly int64_t calls
    cdef readonly int64_t skipped   # calls that were reset before Python served them
    cdef readonly int64_t statuses  # calls that compiled code refused
    cdef NativeTable natives
    cdef HeldReplies held
    cdef list paths                 # keeps the objects of `compiled` alive
    # CallPath by method; NULL: Python serves the method
    cdef void *compiled[METHOD_LIMIT]

    cdef bint collect(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef bint is_memory_short(self, int64_t added) noexcept nogil
    cdef bint check_prefix(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef bint take_messages(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef void answer_foreign(self, Peer *peer, Stream *stream) noexcept nogil
    cdef bint serve_request(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef bint serve_compiled(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef void send_answer(
        self, Peer *peer, Stream *stream, const CallAnswer *answer
    ) noexcept nogil
    cdef bint refuse(
        self, Peer *peer, Stream *stream, int32_t status, const char *text
    ) noexcept nogil
    cdef bint hand_over(
        self, Peer *peer, Stream *stream, GrpcEvent kind, const uint8_t *p,
        int64_t size,
    ) noexcept nogil
    cdef void give_part_back(self, Peer *peer, Stream *stream) noexcept nogil
    cdef void return_call(
        self, uint64_t token, uint32_t stream_id, object function, tuple arguments
    ) noexcept
    cdef Stream *find_kept(self, uint64_t token, uint32_t stream_id) noexcept
    cdef void finish_kept(
        self, uint64_t token, uint32_t stream_id, const CallAnswer *answer
    ) noexcept
    cdef void notify(self, Peer *peer, Stream *stream, GrpcEvent kind) noexcept nogil
    cdef Peer *find_peer(self, uint64_t token) noexcept nogil
    cdef Stream *find_open(self, Peer *peer, uint32_t id) noexcept nogil
