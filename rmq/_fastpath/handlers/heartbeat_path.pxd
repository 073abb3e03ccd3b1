from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef enum:
    HEARTBEAT_LIMIT = 65536     # maximum number of known heartbeats
    BODY_LIMIT = 16 * 1024      # Python serves longer bodies
    BYTES_LIMIT = 32 << 20      # maximum bytes of all bodies together
    SEEN_LIMIT = 4096           # maximum number of heartbeats of one poll

cdef enum Reason:
    UNKNOWN = 0
    TOO_MUCH = 1

cdef class Heartbeat:
    cdef bytes key              # key in the table of names
    cdef bytes body
    cdef object value           # object of Python for this heartbeat
    cdef const uint8_t *text    # bytes of the body
    cdef int64_t size

cdef class HeartbeatPath(NativeHandler):
    cdef object on_beats
    cdef ReplyFields fields_of_answer
    cdef int32_t wire_version
    cdef dict heartbeats        # heartbeats by token; each connection has one
    cdef int64_t size           # bytes of all bodies
    cdef NameTable names
    cdef void **seen            # values of the heartbeats of this poll
    cdef int32_t seen_count
    cdef void reply(self, const Frame *frame, Conn *conn) noexcept nogil
