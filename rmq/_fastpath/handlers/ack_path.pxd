from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Text, Verdict

cdef enum Reason:
    HEADER = 0
    HANDLE = 1
    CHECKPOINT_UNKNOWN = 2
    TOO_MUCH = 3

cdef class AckPath(NativeHandler):
    cdef CheckpointTable table
    cdef bytes broker_name
    cdef const char *broker     # its text
    cdef int64_t broker_size
    cdef int32_t version
    cdef bint read_handle(self, const Text *text, int64_t *numbers) noexcept nogil
