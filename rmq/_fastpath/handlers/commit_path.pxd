from libc.stdint cimport int32_t

from rmq._fastpath.handlers.commit_table cimport CommitTable
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef enum Reason:
    HEADER = 0
    PAIR_UNKNOWN = 1
    TOO_MUCH = 2

cdef class CommitPath(NativeHandler):
    cdef CommitTable table
    cdef int32_t version
