from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Text, Verdict

cdef enum Reason:
    HEADER = 0
    HANDLE = 1
    CHECKPOINT_UNKNOWN = 2
    TOO_MUCH = 3

cdef enum:
    HANDLE_NUMBERS = 4          # numbers of a handle before the flag and the broker
    START = 0
    POP_TIME = 1
    REVIVE_QUEUE = 3

cdef struct AckRequest:
    void *found                 # the checkpoint of the message
    int32_t i                   # index of the message
    int64_t offset
    int64_t numbers[HANDLE_NUMBERS]

cdef class AckPath(NativeHandler):
    cdef CheckpointTable table
    cdef bytes broker_name
    cdef const char *broker     # text of the broker's name
    cdef int64_t broker_size
    cdef int32_t version
    cdef int attach(
        self, CheckpointTable table, str broker_name, int version
    ) except -1
    cdef Verdict find_message(
        self, const Frame *frame, Conn *conn, AckRequest *request
    ) noexcept nogil
    cdef bint read_handle(self, const Text *text, int64_t *numbers) noexcept nogil
