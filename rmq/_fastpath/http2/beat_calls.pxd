from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.http2.call_paths cimport CallPath
from rmq._fastpath.http2.proto_wire cimport Span

cdef enum:
    BEAT_LIMIT = 65536  # maximum number of known heartbeats, as in `HeartbeatPath`
    MESSAGE_LIMIT = 1024        # Python serves longer messages
    BODY_LIMIT = 16 * 1024
    BYTES_LIMIT = 32 << 20      # maximum bytes of all messages and bodies together

cdef class Beat:
    cdef bytes key              # the token of the connection, in the table of names
    cdef tuple texts            # keeps the bytes of the spans alive
    cdef Span client_id
    cdef Span message
    cdef Span body              # body of request 34
    cdef int32_t version
    cdef uint8_t language

cdef class BeatCalls(CallPath):
    cdef dict beats             # heartbeats by token; each connection has one
    cdef NameTable names
    cdef int64_t size           # bytes of all messages and bodies
    cdef uint8_t[64] answer
    cdef int64_t answer_size
