from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPull, Pull
from rmq._fastpath.handlers.pull_search cimport Pulled
from rmq._fastpath.handlers.pull_table cimport PullTable
from rmq._fastpath.log.scan cimport Found
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef class PullPath(NativeHandler):
    cdef PullTable table
    cdef Verdict hold(
        self, const Frame *frame, Conn *conn, const Pull *pull, const Pulled *pulled
    ) noexcept nogil
    cdef bint wait(
        self, const Pull *pull, const Pulled *pulled, uint64_t token, int32_t opaque,
        uint8_t serialize_type, const uint8_t *frame, int64_t size,
    ) noexcept nogil
    cdef void serve_group(
        self, HeldGroup *group, int64_t now_ms, int64_t until_ns
    ) noexcept nogil
    cdef void hide(self, HeldGroup *group) noexcept nogil
    cdef Verdict read_held(
        self, HeldPull *held, int64_t now_ms, Conn *conn, Pulled *pulled, Found *found
    ) noexcept nogil
    cdef void end(self, HeldPull *held, int64_t now_ms) noexcept nogil
    cdef bint answer(
        self, HeldPull *held, const Pulled *pulled, const Found *found
    ) noexcept nogil
    cdef void note_commit(self, const Pull *pull, const Pulled *pulled) noexcept nogil
    cdef bint read_numbers(self, const Frame *frame, Pull *pull) noexcept nogil
    cdef Verdict find_view(
        self, const Frame *frame, Conn *conn, const Pull *pull, Pulled *pulled
    ) noexcept nogil
    cdef void count(
        self, uint64_t token, const Pull *pull, const Pulled *pulled,
        const Found *found,
    ) noexcept nogil
