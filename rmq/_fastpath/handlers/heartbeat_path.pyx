"""HeartbeatPath: request 34, heartbeats that equal a heartbeat that Python has
processed.

Python registers a heartbeat that it has processed, if the next one must get the same
reply.  The same bytes over the same connection are then served here.  Python gets all
heartbeats of a poll at its end, before the replies are sent.  It renews the members
without reading the bodies again.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp

from rmq._fastpath.bytes.ascii cimport put_literal, put_text
from rmq._fastpath.bytes.name_table cimport (
    Name, clear_names, find_name, init_names, insert_name, remove_name, pick_victim,
)
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.reactor.connections cimport Connections
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, ONEWAY_FLAG, begin_binary, end_frame, end_header, end_json, end_value,
)
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, SERVED, Conn, Frame, NativeHandler, Verdict, decline,
)

REASONS = ("new or changed", "too much")


cdef struct Sender:             # no padding: all bytes are compared
    uint64_t token
    int64_t version
    int64_t language


@cython.final
cdef class Heartbeat:
    """The registered heartbeat of a connection."""

    def __cinit__(self, bytes key not None, bytes body not None, value):
        self.key, self.body, self.value = key, body, value
        self.text, self.size = body, len(body)


@cython.final
cdef class HeartbeatPath(NativeHandler):
    """Serves request 34 HEART_BEAT."""

    def __init__(self, on_beats not None, dict fields not None, int32_t version):
        """`on_beats` gets the list of the values registered with the poll's heartbeats.

        `fields` are the ext fields of every reply; ValueError if there are no fields.
        """
        if not fields:
            raise ValueError("the answer to a heartbeat has ext fields")
        NativeHandler.__init__(self, (), (), CONTRACT_VERSION, REASONS)
        self.on_beats = on_beats
        self.fields_of_answer = ReplyFields(fields)
        self.wire_version = version
        self.heartbeats = {}
        self.seen = <void **>malloc(SEEN_LIMIT * sizeof(void *))
        if self.seen == NULL:
            raise MemoryError
        init_names(&self.names)

    def __dealloc__(self):
        free(self.names.slots)
        free(self.seen)

    def __len__(self):
        return len(self.heartbeats)

    def register(
        self, uint64_t token, bytes body not None, value, *,
        int32_t version, uint8_t language,
    ):
        """Serve this heartbeat of a connection, and no other heartbeat of it.

        `on_beats` gets `value`. Version and language are from the header.

        Above 65,536 heartbeats, or 32 MiB, it evicts others. It ignores a heartbeat of
        more than 16 KiB.
        """
        cdef Sender sender
        cdef Heartbeat heartbeat
        if len(body) > BODY_LIMIT:
            return
        sender.token, sender.version, sender.language = token, version, language
        heartbeat = Heartbeat((<char *>&sender)[:sizeof(Sender)] + b"\xff", body, value)
        self.unregister(token)
        while len(self.heartbeats) >= HEARTBEAT_LIMIT or (
            self.size + heartbeat.size > BYTES_LIMIT
        ):
            self.unregister((<const Sender *>pick_victim(&self.names).key).token)
        insert_name(&self.names, heartbeat.key, <void *>heartbeat)
        self.heartbeats[token] = heartbeat
        self.size += heartbeat.size

    def unregister(self, uint64_t token):
        """Leave the next heartbeat of a connection to Python."""
        cdef Heartbeat heartbeat = self.heartbeats.pop(token, None)
        if heartbeat is not None:
            self.size -= heartbeat.size
            remove_name(&self.names, heartbeat.key, <void *>heartbeat)

    def unregister_all(self):
        """Leave all heartbeats to Python until they are registered again."""
        assert self.seen_count == 0, "heartbeats of this poll are not reported yet"
        if self.heartbeats:
            clear_names(&self.names)
            self.heartbeats.clear()
            self.size = 0

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Record a registered heartbeat, and reply."""
        cdef Sender sender
        cdef Name name
        cdef void *heartbeat
        sender.token = (<Connections>conn.owner).token_of(conn.slot)
        sender.version, sender.language = frame.version, frame.language
        name.data, name.size = <const uint8_t *>&sender, sizeof(Sender)
        if frame.body_size > BODY_LIMIT:
            return decline(conn, TOO_MUCH)
        heartbeat = find_name(&self.names, &name, 1)
        if (
            heartbeat == NULL
            or (<Heartbeat>heartbeat).size != frame.body_size
            or memcmp((<Heartbeat>heartbeat).text, frame.body, frame.body_size)
        ):
            return decline(conn, UNKNOWN)
        if self.seen_count == SEEN_LIMIT:
            return decline(conn, TOO_MUCH)
        self.seen[self.seen_count] = heartbeat
        self.seen_count += 1
        if not frame.flag & ONEWAY_FLAG:
            self.reply(frame, conn)
        return SERVED

    cdef bint end_of_poll(self) noexcept nogil:
        """Report the heartbeats of this poll."""
        cdef int32_t i
        if self.seen_count == 0:
            return True
        with gil:
            values = []
            for i in range(self.seen_count):
                values.append((<Heartbeat>self.seen[i]).value)
            self.seen_count = 0
            self.on_beats(values)
        return True

    cdef void reply(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Write the reply that Python has sent before."""
        cdef uint8_t *start = conn.ready.end
        cdef uint8_t *end
        cdef uint8_t *value
        if frame.serialize_type == JSON_TYPE:
            end = put_literal(start + 8, b'{"code":0,"extFields":{')
            end = put_text(         # the text without its first comma
                end,
                self.fields_of_answer.json_text + 1,
                self.fields_of_answer.json_size - 1,
            )
            end = put_literal(end, b"}")
            end = end_json(end, frame, b"", self.wire_version)
        else:
            value = begin_binary(start + 8, frame, 0, b"", self.wire_version)
            end = put_text(
                value,
                self.fields_of_answer.binary_text,
                self.fields_of_answer.binary_size,
            )
            end_value(value, end)
        end_header(start, end, frame.serialize_type)
        conn.ready.end = end_frame(start, end)
