"""BeatCalls: calls of Heartbeat that equal a call that Python has served.

Python registers the message of a call with the body of request 34, which the call
became. The same message of the same client becomes this request again, and the compiled
heartbeats answer it. They discard the registered heartbeat when a group or its members
change. One client of each connection is registered: the last one that Python has
served.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memset

from rmq._fastpath.bytes.name_table cimport (
    Name, find_name, init_names, insert_name, pick_victim, remove_name,
)
from rmq._fastpath.http2.call_answers cimport OK, put_status
from rmq._fastpath.http2.call_paths cimport Call, CallAnswer, CallPath
from rmq._fastpath.http2.header_names cimport CLIENT_ID
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.request_head cimport find_metadata
from rmq._fastpath.reactor.native cimport (
    DECLINED, REPLY_ROOM, SERVED, Conn, Frame, Verdict,
)

cdef enum:
    BINARY_TYPE = 1             # serialize type of a header


@cython.final
cdef class Beat:
    """The registered heartbeat of a connection."""

    def __cinit__(
        self,
        bytes key not None,
        bytes client_id not None,
        bytes message not None,
        bytes body not None,
        int32_t version,
        uint8_t language,
    ):
        self.key, self.texts = key, (client_id, message, body)
        self.client_id.data, self.client_id.size = client_id, len(client_id)
        self.message.data, self.message.size = message, len(message)
        self.body.data, self.body.size = body, len(body)
        self.version, self.language = version, language


cdef bint is_equal(const Span *own, const uint8_t *data, int64_t size) noexcept nogil:
    return own.size == size and memcmp(own.data, data, size) == 0


@cython.final
cdef class BeatCalls(CallPath):
    """Serves Heartbeat for clients that are registered."""

    def __cinit__(self):
        self.beats = {}
        init_names(&self.names)
        self.answer_size = put_status(self.answer, OK) - self.answer

    def __init__(self, int32_t code):
        self.code = code

    def __dealloc__(self):
        free(self.names.slots)

    def __len__(self):
        return len(self.beats)

    def register(
        self, uint64_t token, str client_id not None, bytes message not None,
        bytes body not None, *, int32_t version, uint8_t language,
    ):
        """Serve this heartbeat of a connection, and no other heartbeat of it.

        Version, language and body are of request 34. Above 65,536 heartbeats, or 32
        MiB, it evicts others. It ignores a message of more than 1 KiB, and a body of
        more than 16 KiB.
        """
        cdef Beat beat
        cdef int64_t size = len(message) + len(body)
        self.unregister(token)
        if len(message) > MESSAGE_LIMIT or len(body) > BODY_LIMIT:
            return
        while len(self.beats) >= BEAT_LIMIT or self.size + size > BYTES_LIMIT:
            self.unregister((<const uint64_t *>pick_victim(&self.names).key)[0])
        beat = Beat(
            (<char *>&token)[:sizeof(token)] + b"\xff", client_id.encode(), message,
            body, version, language,
        )
        insert_name(&self.names, beat.key, <void *>beat)
        self.beats[token] = beat
        self.size += size

    def unregister(self, uint64_t token):
        """Leave the next heartbeat of a connection to Python."""
        cdef Beat beat = self.beats.pop(token, None)
        if beat is not None:
            self.size -= beat.message.size + beat.body.size
            remove_name(&self.names, beat.key, <void *>beat)

    cdef Verdict serve(self, const Call *call, CallAnswer *answer) noexcept nogil:
        """Pass a registered heartbeat to the compiled heartbeats."""
        cdef uint64_t token = self.natives.connections.token_of(call.index)
        cdef uint8_t[REPLY_ROOM] reply
        cdef Name name
        cdef Frame frame
        cdef Conn conn
        cdef void *beat
        name.data, name.size = <const uint8_t *>&token, sizeof(token)
        beat = find_name(&self.names, &name, 1)
        if beat == NULL or not is_repeated(<Beat>beat, call):
            self.declined += 1
            return DECLINED
        memset(&frame, 0, sizeof(Frame))
        frame.serialize_type = BINARY_TYPE
        frame.version, frame.language = (<Beat>beat).version, (<Beat>beat).language
        frame.body = (<Beat>beat).body.data
        frame.body_size = <uint32_t>(<Beat>beat).body.size
        conn.ready.end = reply
        conn.ready.limit = reply + REPLY_ROOM
        if self.natives.serve_call(
            call.index, &call.signer, self.code, &frame, &conn
        ) != SERVED:
            self.declined += 1
            return DECLINED
        self.served += 1
        answer.data, answer.size = self.answer, self.answer_size
        return SERVED


cdef bint is_repeated(Beat beat, const Call *call) noexcept nogil:
    """True if a call repeats the registered heartbeat of its connection."""
    cdef Span client_id
    if not is_equal(&beat.message, call.message, call.size):
        return False
    find_metadata(call.metadata, call.metadata_size, CLIENT_ID, &client_id)
    return is_equal(&beat.client_id, client_id.data, client_id.size)
