from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPull, Pull
from rmq._fastpath.handlers.pull_search cimport PullReply
from rmq._fastpath.handlers.pull_table cimport PullTable
from rmq._fastpath.log.scan cimport ScanResult
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class PullPath(NativeHandler):
    cdef PullTable table
    cdef Verdict hold_request(
        self, const Frame *frame, Conn *conn, const Pull *pull, const PullReply *pulled
    ) noexcept nogil
    cdef bint add_to_group(
        self, const Pull *pull, const PullReply *pulled, uint64_t token, int32_t opaque,
        uint8_t serialize_type, const uint8_t *frame, int64_t size,
    ) noexcept nogil
    cdef void serve_group(
        self, HeldGroup *group, int64_t now_ms, int64_t until_ns
    ) noexcept nogil
    cdef void hide_group(self, HeldGroup *group) noexcept nogil
    cdef Verdict find_for_held(
        self, HeldPull *held, int64_t now_ms, Conn *conn, PullReply *pulled,
        ScanResult *found,
    ) noexcept nogil
    cdef void end_pull(self, HeldPull *held, int64_t now_ms) noexcept nogil
    cdef bint send_reply(
        self, HeldPull *held, const PullReply *pulled, const ScanResult *found
    ) noexcept nogil
    cdef void record_commit(
        self, const Pull *pull, const PullReply *pulled
    ) noexcept nogil
    cdef bint read_numbers(self, const Frame *frame, Pull *pull) noexcept nogil
    cdef Verdict find_view(
        self, const Frame *frame, Conn *conn, const Pull *pull, PullReply *pulled
    ) noexcept nogil
    cdef void count_served(
        self, uint64_t token, const Pull *pull, const PullReply *pulled,
        const ScanResult *found,
    ) noexcept nogil
