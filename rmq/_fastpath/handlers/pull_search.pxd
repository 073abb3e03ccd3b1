from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.held_pulls cimport Pull
from rmq._fastpath.handlers.pull_table cimport PullTable
from rmq._fastpath.log.scan cimport ScanResult
from rmq._fastpath.reactor.native cimport Conn, Verdict

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
    GONE = 9  # the log has no records any more for the examined entries

cdef struct PullReply:          # the values of a reply
    int32_t code
    const char *json_remark     # a whole JSON member with its comma
    const char *remark
    int64_t next_offset
    int64_t low
    int64_t high
    void *view


cdef int64_t visible_end(PullTable table, void *queue) noexcept nogil
cdef Verdict find_messages(
    PullTable table, Conn *conn, const Pull *pull, PullReply *pulled, ScanResult *found
) noexcept nogil
