from libc.stdint cimport int64_t, uint32_t

from rmq._fastpath.bytes.syscalls cimport epoll_event
from rmq._fastpath.reactor.connections cimport Connections
from rmq._fastpath.reactor.held_replies cimport HeldReplies
from rmq._fastpath.reactor.frame_decoder cimport SocketFrameDecoder
from rmq._fastpath.reactor.native_table cimport NativeTable
from rmq._fastpath.reactor.pacing cimport Pacing
from rmq._fastpath.reactor.rpc_times cimport RpcTimes
from rmq._fastpath.reactor.steps cimport Steps

cdef enum:
    READY_LIMIT = 1024  # connections looked at in one poll: 0.1 ms

cdef struct Limits:
    int64_t start_bytes         # at the start; the first connection has no limit
    int64_t bytes               # maximum of `bytes_in`, the sum of all polls
    int64_t until_ns

cdef class Reactor:
    cdef readonly int epfd
    cdef readonly Connections connections
    cdef readonly NativeTable natives
    cdef readonly HeldReplies held
    cdef SocketFrameDecoder intake
    cdef readonly RpcTimes rpc_times
    cdef Pacing pacing
    cdef Steps steps
    cdef bint has_inner_loop    # all waits are known, so that steps can be counted
    cdef readonly int wake_fd   # in the set: wakes the owner
    cdef uint32_t rotation      # which ready connection comes first
    # by is_heavy: the poll with which the round began
    cdef int64_t round_poll[2]
    # by is_heavy: this poll leaves ready connections to a later one
    cdef bint is_limited[2]
    # processor time at the start of a poll with heavy connections that follows a large
    # one; else 0
    cdef int64_t large_begun_ns
    cdef int64_t last_bytes     # received in the last poll
    cdef bint is_collecting     # replies wait for `flush`
    cdef public bint has_slaves     # Python sends new records to slaves
    # slaves get new records after this time at the latest; 0: after each poll
    cdef public int64_t replication_interval_ns
    cdef bint has_more          # a compiled handler needs another turn

    cdef bint may_wait(self) noexcept nogil
    cdef int wait(self, epoll_event *ready) noexcept
    cdef int wait_busily(self, epoll_event *ready) noexcept nogil
    cdef int wait_for_disk(self, epoll_event *ready) noexcept nogil
    cdef bint serve_ready(self, const epoll_event *ready, int count) noexcept nogil
    cdef int64_t end_batch(self, bint is_last) noexcept nogil
    cdef void serve_all(
        self, const epoll_event *ready, int count, int64_t begun_ns, bint is_encrypted
    ) noexcept nogil
    cdef bint is_heavy(self, const epoll_event *event) noexcept nogil
    cdef void serve_one(
        self,
        const epoll_event *event,
        const Limits *limits,
        bint is_encrypted,
        bint is_heavy,
    ) noexcept nogil
    cdef void send_unless_collecting(self) noexcept nogil
