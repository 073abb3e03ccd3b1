from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.held_pulls cimport HeldGroup, HeldPull, Pull
from rmq._fastpath.native cimport Conn, Frame, NativeHandler, Verdict
from rmq._fastpath.pull_table cimport PullTable
from rmq._fastpath.scan cimport Found, Wanted

cdef enum Reason:
    HEADER = 0
    VIEW_UNKNOWN = 1
    NOT_LATEST = 2
    FILE_UNKNOWN = 3
    OUTSIDE = 4
    NOTHING_MATCHES = 5
    NOT_RESIDENT = 6
    TOO_MUCH = 7
    NO_PLACE = 8

cdef struct Pulled:             # what a reply says
    int32_t code
    const char *json_remark     # a whole member with its comma
    const char *remark
    int64_t next_offset
    int64_t low
    int64_t high
    void *view

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
    cdef Verdict read(
        self, Conn *conn, const Pull *pull, Pulled *pulled, Found *found
    ) noexcept nogil
    cdef const uint8_t *find_in_file(
        self, Conn *conn, const Pull *pull, const Pulled *pulled, int64_t *size
    ) noexcept nogil
    cdef void limit(
        self, const Pull *pull, int64_t distance, Wanted *wanted
    ) noexcept nogil
    cdef bint is_at_hand(self, const Found *found, int64_t now_ms) noexcept nogil
    cdef void reply(
        self, const Frame *frame, Conn *conn, const Pulled *pulled, const Found *found
    ) noexcept nogil
    cdef void count(
        self, const Pull *pull, const Pulled *pulled, const Found *found
    ) noexcept nogil
    cdef uint8_t *put_records(self, uint8_t *out, const Found *found) noexcept nogil
    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const Pulled *pulled
    ) noexcept nogil
    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const Pulled *pulled
    ) noexcept nogil
