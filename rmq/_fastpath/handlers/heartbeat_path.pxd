from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef enum:
    HEARTBEAT_LIMIT = 65536     # heartbeats that are known at the same time
    BODY_LIMIT = 16 * 1024      # a longer one is for Python
    BYTES_LIMIT = 32 << 20      # of all bodies together
    SEEN_LIMIT = 4096           # heartbeats of one poll

cdef enum Reason:
    UNKNOWN = 0
    TOO_MUCH = 1

cdef class Heartbeat:
    cdef bytes key              # in the table of names
    cdef bytes body
    cdef object value           # Python's
    cdef const uint8_t *text    # of the body
    cdef int64_t size

cdef class HeartbeatPath(NativeHandler):
    cdef object on_beats
    cdef ReplyFields fields_of_answer
    cdef int32_t wire_version
    cdef dict heartbeats        # by token; each connection has one
    cdef int64_t size           # of all bodies
    cdef NameTable names
    cdef void **seen            # values, of this poll
    cdef int32_t seen_count
    cdef void reply(self, const Frame *frame, Conn *conn) noexcept nogil
