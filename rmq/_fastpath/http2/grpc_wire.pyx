"""GrpcWire: the calls of gRPC on connections of HTTP/2.

A message is 1 byte 0 (1: compressed), its size in 4 bytes, and its bytes. A call has
one message, and is served when the request has ended. Telemetry has any number of
messages: Python gets each message as it comes.

    CALL           token, stream, method, message, metadata
    MESSAGE        as CALL; the metadata comes with the first one
    HALF_CLOSED    the client of a Telemetry stream sends no more
    ENDED          the client reset a stream whose call Python has taken
    ROOM           the answer of a stream that `want_room` named has left
    RETURNED_CALL  a call that a path has kept and cannot serve; a function and its
                   arguments take the message's place

Metadata are the values of `request_head.pyx`. `take_event` gives these events in the
order of their arrival. It leaves out calls that were reset while they waited.
A message that is whole in one frame is read in place. Other messages are collected in a
buffer that grows with the received bytes, not with the announced size. Limits:
SEND_LIMIT for the message of a send, and COLD_LIMIT for other messages; PARTS_LIMIT for
the messages of a connection that are not whole, and METADATA_TOTAL for the metadata of
its open streams. Larger messages are refused with the status RESOURCE_EXHAUSTED as soon
as their size is known.
"""
# tidy: long — one table: the calls of all streams, for compiled code and for Python

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset, strlen
from cpython.bytes cimport PyBytes_FromStringAndSize

from collections import deque

from rmq._fastpath.bytes.endian cimport get32
from rmq._fastpath.http2.answers cimport (
    ENHANCE_YOUR_CALM, INTERNAL, INTERNAL_ERROR, MESSAGE_PREFIX, NO_ERROR,
    REFUSED_STREAM, RESOURCE_EXHAUSTED, UNIMPLEMENTED, answer_no_grpc, end_answer,
    end_with_status, push_goaway, send_framed, send_message,
)
from rmq._fastpath.http2.call_paths cimport (
    Call, CallAnswer, CallPath, read_signer, set_text,
)
from rmq._fastpath.http2.frames cimport Http2
from rmq._fastpath.http2.grpc_methods cimport (
    METHOD_LIMIT, NO_GRPC, SEND_MESSAGE, TELEMETRY,
)
from rmq._fastpath.http2.header_names cimport CLIENT_ID
from rmq._fastpath.http2.peers cimport (
    EMPTY_FRAMES_PER_CALL, EMPTY_FRAMES_PER_S, EMPTY_FRAME_LIMIT, METADATA_TOTAL,
    WINDOW_LIMIT, Peer, take_tokens,
)
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.request_head cimport find_metadata
from rmq._fastpath.http2.sent_message cimport is_mostly_body
from rmq._fastpath.http2.streams cimport Stream, find_stream, free_metadata
from rmq._fastpath.reactor.buffers cimport (
    Buffer, compact_buffer, pending_size, release_buffer, resize_buffer,
)
from rmq._fastpath.reactor.connections cimport Connections, Slot
from rmq._fastpath.reactor.grants cimport Signer
from rmq._fastpath.reactor.held_replies cimport HeldReplies
from rmq._fastpath.reactor.native cimport (
    HELD, KEPT, SERVED, Conn, Frame, NativeHandler, Verdict,
)
from rmq._fastpath.reactor.native_table cimport Native, NativeTable

cdef enum:
    SEND_LIMIT = (4 << 20) + (64 << 10)     # a body, and other fields of its message
    COLD_LIMIT = 64 << 10
    PARTS_LIMIT = 2 * SEND_LIMIT
    FIRST_PART = 1024
    EVENT_SIZE = 512            # memory of an event, without its bytes


cdef struct OwnReply:           # `conn` comes first: `grow_reply` finds the rest
    Conn conn
    uint8_t *data


cdef bint grow_reply(Conn *conn, int64_t size) noexcept nogil:
    """Make room for a reply that goes to Python."""
    cdef OwnReply *reply = <OwnReply *>conn
    free(reply.data)
    reply.data = <uint8_t *>malloc(size)
    conn.ready.end = reply.data
    conn.ready.limit = reply.data + size
    return reply.data != NULL


@cython.final
cdef class GrpcWire(Http2):
    """The calls of all connections that speak HTTP/2."""

    def __cinit__(self, Connections connections not None):
        self.events = deque()
        self.paths = []

    def register(
        self,
        int method,
        CallPath path not None,
        NativeTable natives not None,
        HeldReplies held not None,
    ):
        """Serve the calls of a method with compiled code, before Python."""
        if not 0 <= method < METHOD_LIMIT:
            raise ValueError(f"method {method}")
        self.natives = path.natives = natives
        path.wire = self
        self.held = held
        self.paths.append(path)
        self.compiled[method] = <void *>path

    # -- requests

    cdef bint on_head(self, Peer *peer, Stream *stream) noexcept nogil:
        """Keep the metadata of a call."""
        cdef int32_t size = self.head.metadata_size
        if stream.method < 0 or size == 0:
            return True
        if peer.metadata_size + size <= METADATA_TOTAL and (
            not self.is_memory_short(size)
        ):
            stream.metadata = <uint8_t *>malloc(size)
        if stream.metadata == NULL:
            self.refused += 1
            return self.reset_stream(peer, stream, stream.id, REFUSED_STREAM)
        memcpy(stream.metadata, self.head.metadata, size)
        stream.metadata_size = size
        peer.metadata_size += size
        self.connections.budget.used += size
        return True

    cdef bint on_data(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size, bint is_end
    ) noexcept nogil:
        if stream.method < 0:
            if is_end:
                self.answer_foreign(peer, stream)
            return True
        if stream.method == TELEMETRY:
            return self.take_messages(peer, stream, p, size)
        if is_end and pending_size(&stream.part) == 0:
            return self.serve_request(peer, stream, p, size)
        if not self.collect(peer, stream, p, size):
            return True
        if is_end:
            p, size = stream.part.data, stream.part.end
            return self.serve_request(peer, stream, p, size)
        return True

    cdef void answer_foreign(self, Peer *peer, Stream *stream) noexcept nogil:
        """Answer a request that is no call of this service."""
        if stream.method == NO_GRPC:
            answer_no_grpc(self.connections, peer, stream)
        else:
            self.refuse(peer, stream, UNIMPLEMENTED, b"unknown service or method")

    cdef bint check_prefix(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """True if the first bytes of a message are allowed; if not, the call is
        refused.
        """
        cdef int64_t limit = SEND_LIMIT if stream.method == SEND_MESSAGE else COLD_LIMIT
        if size > 0 and p[0]:
            self.refuse(
                peer, stream, UNIMPLEMENTED, b"compressed messages are not supported"
            )
            return False
        if size >= MESSAGE_PREFIX and get32(p + 1) > limit:
            self.refuse(peer, stream, RESOURCE_EXHAUSTED, b"the message is too large")
            return False
        return True

    cdef bint collect(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Append to a message that is not whole; False if the call was refused."""
        cdef Buffer *part = &stream.part
        cdef int64_t wanted = part.end + size
        if peer.part_size + size > PARTS_LIMIT:
            self.refuse(
                peer, stream, RESOURCE_EXHAUSTED, b"too many messages are not whole"
            )
            return False
        if wanted > part.capacity:
            wanted = max(wanted, min(2 * part.capacity, <int64_t>SEND_LIMIT))
            wanted = max(wanted, <int64_t>FIRST_PART)
            if not self.connections.may_grow(peer.index, part, wanted) or (
                not resize_buffer(part, wanted, &self.connections.budget)
            ):
                self.refuse(peer, stream, RESOURCE_EXHAUSTED, b"no memory")
                return False
        if size:
            memcpy(part.data + part.end, p, size)
        part.end += size
        peer.part_size += size
        return self.check_prefix(peer, stream, part.data, part.end)

    cdef bint is_memory_short(self, int64_t added) noexcept nogil:
        return self.connections.budget.used + added > self.connections.budget.limit

    cdef bint serve_request(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Serve a request that has ended."""
        if not self.check_prefix(peer, stream, p, size):
            return True
        if size < MESSAGE_PREFIX or get32(p + 1) != size - MESSAGE_PREFIX:
            return self.refuse(
                peer, stream, INTERNAL, b"the request is not exactly one message"
            )
        p += MESSAGE_PREFIX
        size -= MESSAGE_PREFIX
        if self.compiled[stream.method] != NULL and peer.waiting_calls == 0:
            if self.serve_compiled(peer, stream, p, size):
                return True
        if stream.method == SEND_MESSAGE and size > COLD_LIMIT:
            if not is_mostly_body(p, size, COLD_LIMIT):
                return self.refuse(
                    peer, stream, RESOURCE_EXHAUSTED,
                    b"over 64 KiB of the message are outside of bodies",
                )
        return self.hand_over(peer, stream, CALL, p, size)

    cdef bint serve_compiled(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Serve a call with compiled code; False if Python has to serve it.

        Calls after a call that waits for Python wait, too, so that the sends of a
        connection keep their order.
        """
        cdef void *path = self.compiled[stream.method]
        cdef Call call
        cdef CallAnswer answer
        cdef Span client_id
        cdef Verdict verdict
        if (<CallPath>path).needs_room and peer.late_size:
            return False
        find_metadata(stream.metadata, stream.metadata_size, CLIENT_ID, &client_id)
        if client_id.size == 0:
            return False
        call.index, call.stream = peer.index, stream.id
        call.message, call.size = p, size
        answer.is_framed = False
        call.metadata, call.metadata_size = stream.metadata, stream.metadata_size
        if self.natives.grants is not None:
            read_signer(&call)
        verdict = (<CallPath>path).serve(&call, &answer)
        if verdict != SERVED and verdict != HELD and verdict != KEPT:
            return False
        take_tokens(
            &peer.empty_frames, -EMPTY_FRAMES_PER_CALL, EMPTY_FRAMES_PER_S,
            EMPTY_FRAME_LIMIT, self.connections.now_ms,
        )
        if verdict != SERVED:
            self.give_part_back(peer, stream)
            peer.metadata_size -= stream.metadata_size
            free_metadata(stream, &self.connections.budget)
        if verdict == HELD:
            self.held.hold_compiled(
                self.connections.token_of(peer.index), answer.data, answer.size,
                answer.watermark, (<CallPath>path).code, stream.id,
            )
        elif verdict == KEPT:
            stream.is_kept = True
        else:
            self.send_answer(peer, stream, &answer)
        return True

    cdef void send_answer(
        self, Peer *peer, Stream *stream, const CallAnswer *answer
    ) noexcept nogil:
        """Send the answer of compiled code, and end the call."""
        cdef bint is_sent
        if answer.is_framed:
            is_sent = send_framed(
                self.connections, peer, stream, answer.data, answer.size
            )
        else:
            is_sent = send_message(
                self.connections, peer, stream, answer.data, answer.size
            )
        if is_sent:
            end_answer(self.connections, peer, stream)
        else:
            self.reset_stream(peer, stream, stream.id, ENHANCE_YOUR_CALM)

    cdef void send_held(
        self, uint64_t token, uint32_t stream_id, const uint8_t *data, int64_t size,
        int32_t code,
    ) noexcept nogil:
        """Send the answer of a call that waited for the disk or a slave."""
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        cdef CallAnswer answer
        if stream == NULL:
            return
        answer.data, answer.size, answer.is_framed = data, size, False
        if code:
            (<CallPath>self.compiled[stream.method]).refuse(data, size, code, &answer)
        self.send_answer(peer, stream, &answer)

    cdef bint take_messages(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Add events for the complete messages of a stream that has several."""
        cdef Buffer *part = &stream.part
        cdef int64_t start = 0, wanted
        if size and not self.collect(peer, stream, p, size):
            return True
        while part.end - start >= MESSAGE_PREFIX:
            wanted = MESSAGE_PREFIX + <int64_t>get32(part.data + start + 1)
            if not self.check_prefix(
                peer, stream, part.data + start, part.end - start
            ):
                return True
            if part.end - start < wanted:
                break
            if not self.hand_over(
                peer, stream, MESSAGE, part.data + start + MESSAGE_PREFIX,
                wanted - MESSAGE_PREFIX,
            ):
                return False
            start += wanted
        peer.part_size -= start
        part.start = start
        if pending_size(part) == 0:
            release_buffer(part, &self.connections.budget)
        else:
            compact_buffer(part)
        if not stream.is_ended:
            return True
        if pending_size(part):
            return self.refuse(peer, stream, INTERNAL, b"half a message at the end")
        return self.hand_over(peer, stream, HALF_CLOSED, NULL, 0)

    cdef bint refuse(
        self, Peer *peer, Stream *stream, int32_t status, const char *text
    ) noexcept nogil:
        """End a call with a status; always True: the connection has not failed."""
        self.statuses += 1
        self.on_drop(peer, stream)
        end_with_status(
            self.connections, peer, stream, status, <const uint8_t *>text, strlen(text)
        )
        return True

    # -- events for Python

    cdef bint hand_over(
        self, Peer *peer, Stream *stream, GrpcEvent kind, const uint8_t *p,
        int64_t size,
    ) noexcept nogil:
        """Add an event with a copy of the message."""
        cdef uint64_t token = self.connections.token_of(peer.index)
        cdef bint is_added = False
        take_tokens(
            &peer.empty_frames, -EMPTY_FRAMES_PER_CALL, EMPTY_FRAMES_PER_S,
            EMPTY_FRAME_LIMIT, self.connections.now_ms,
        )
        with gil:
            try:
                self.events.append((
                    kind,
                    token,
                    stream.id,
                    stream.method,
                    PyBytes_FromStringAndSize(<const char *>p, size),
                    PyBytes_FromStringAndSize(
                        <const char *>stream.metadata, stream.metadata_size
                    ),
                ))
                is_added = True
            except MemoryError:
                pass
        if not is_added:
            return self.fail(peer, INTERNAL_ERROR, b"no memory")
        peer.waiting_calls += 1
        size += EVENT_SIZE + stream.metadata_size
        peer.waiting_size += size
        self.connections.budget.used += size
        peer.metadata_size -= stream.metadata_size
        free_metadata(stream, &self.connections.budget)
        if kind == CALL:
            self.give_part_back(peer, stream)
        self.calls += 1
        self.event_count += 1
        return True

    cdef void give_part_back(self, Peer *peer, Stream *stream) noexcept nogil:
        peer.part_size -= pending_size(&stream.part)
        release_buffer(&stream.part, &self.connections.budget)

    cdef void on_drop(self, Peer *peer, Stream *stream) noexcept nogil:
        if stream.is_taken:
            self.notify(peer, stream, ENDED)
        elif stream.is_kept:
            (<CallPath>self.compiled[stream.method]).drop_call(
                self.connections.token_of(peer.index), stream.id
            )

    cdef void on_room(self, Peer *peer, Stream *stream) noexcept nogil:
        if stream.is_room_wanted and pending_size(&stream.late) == 0:
            stream.is_room_wanted = False
            self.notify(peer, stream, ROOM)

    # -- calls that a path keeps

    cdef Stream *find_kept(self, uint64_t token, uint32_t stream_id) noexcept:
        """Return the stream of a call that a path keeps; NULL: it cannot be answered.

        Then the stream is gone, or the peer has no room.
        """
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        if stream == NULL or stream.is_ending or peer.late_size or peer.is_failed:
            return NULL
        return stream

    cdef void finish_kept(
        self, uint64_t token, uint32_t stream_id, const CallAnswer *answer
    ) noexcept:
        """Answer and end a call that a path has kept."""
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        if stream != NULL:
            stream.is_kept = False
            self.send_answer(peer, stream, answer)

    cdef void return_call(
        self, uint64_t token, uint32_t stream_id, object function, tuple arguments
    ) noexcept:
        """Leave a call to Python: `function` gets the call and the arguments."""
        cdef Stream *stream = self.find_open(self.find_peer(token), stream_id)
        if stream == NULL:
            return
        stream.is_kept = False
        self.events.append((
            RETURNED_CALL, token, stream_id, stream.method, (function, arguments), b"",
        ))
        self.event_count += 1

    cdef void notify(self, Peer *peer, Stream *stream, GrpcEvent kind) noexcept nogil:
        """Add an event about a stream that Python knows."""
        with gil:
            self.events.append((
                kind, self.connections.token_of(peer.index), stream.id, stream.method,
                b"", b"",
            ))
        self.event_count += 1

    # -- for the owner

    @property
    def has_events(self):
        """True if there are events for `take_event`."""
        return len(self.events) > 0

    def take_event(self):
        """Return the next event, or None; calls that were reset are left out."""
        cdef Peer *peer
        cdef Stream *stream
        cdef int64_t size
        while self.events:
            event = self.events.popleft()
            self.event_count -= 1
            kind = event[0]
            if kind == ENDED or kind == ROOM:
                return event
            peer = self.find_peer(event[1])
            if peer == NULL:
                self.skipped += 1
                continue
            if kind != RETURNED_CALL:
                peer.waiting_calls -= 1
                size = EVENT_SIZE + len(event[4]) + len(event[5])
                peer.waiting_size -= size
                self.connections.budget.used -= size
            stream = find_stream(&peer.streams, event[2])
            if stream == NULL:
                self.skipped += 1
                continue
            stream.is_taken = True
            return event
        return None

    cdef Peer *find_peer(self, uint64_t token) noexcept nogil:
        """Return the state of an open connection that speaks HTTP/2, or NULL."""
        cdef Slot *slot = self.connections.find(token)
        return NULL if slot == NULL else <Peer *>slot.wire

    cdef Stream *find_open(self, Peer *peer, uint32_t id) noexcept nogil:
        return NULL if peer == NULL else find_stream(&peer.streams, id)

    def reply(
        self,
        uint64_t token,
        uint32_t stream_id,
        bytes message not None,
        bint is_last,
    ):
        """Send a message of an answer, with its end if it is the last one.

        False if the stream is gone, or too many bytes wait for its peer.
        """
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        if stream == NULL or stream.is_ending:
            return False
        if not send_message(self.connections, peer, stream, message, len(message)):
            self.reset_stream(peer, stream, stream_id, ENHANCE_YOUR_CALM)
            return False
        if is_last:
            stream.is_taken = False
            end_answer(self.connections, peer, stream)
        return True

    def reply_all(self, uint64_t token, uint32_t stream_id, list messages not None):
        """Send the messages of an answer and its end.

        False if the stream is gone, or too many bytes wait for its peer.
        """
        cdef bytes message
        for message in messages:
            if not self.reply(token, stream_id, message, False):
                return False
        return self.end(token, stream_id, 0, b"")

    def ask_handler(
        self, uint64_t token, str user not None, int32_t code, dict fields not None
    ):
        """Return the reply of the compiled handler of a code; None if it declines.

        Python has verified the user. The request must not wait. The next poll ends the
        batch of the handler.
        """
        cdef Slot *slot = self.connections.find(token)
        cdef Native *native = NULL
        cdef OwnReply reply
        cdef Frame frame
        cdef Signer signer
        cdef Verdict verdict
        cdef bytes text, signed_by = user.encode()
        if self.natives is not None and slot != NULL:
            native = self.natives.find(slot.listener, code)
        if native == NULL:
            return None
        memset(&frame, 0, sizeof(Frame))
        memset(&signer, 0, sizeof(Signer))
        set_text(&signer.user, signed_by, len(signed_by))
        signer.is_verified = True
        values = []
        for i, name in enumerate((<NativeHandler>native.handler).fields):
            value = fields.get(name)
            if value is not None:
                text = value.encode()
                values.append(text)
                set_text(&frame.fields[i], text, len(text))
        reply.conn.ready.end = reply.conn.ready.limit = reply.data = NULL
        reply.conn.grow = grow_reply
        try:
            verdict = self.natives.serve_call(
                <uint32_t>token, &signer, code, &frame, &reply.conn
            )
            if verdict == SERVED:
                return reply.data[:reply.conn.ready.end - reply.data]
            return None
        finally:
            free(reply.data)

    def end(self, uint64_t token, uint32_t stream_id, int status, bytes text not None):
        """End an answer with a status of gRPC; False if the stream is gone."""
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        if stream == NULL or stream.is_ending:
            return False
        stream.is_taken = False
        if status == 0:
            end_answer(self.connections, peer, stream)
        else:
            end_with_status(
                self.connections, peer, stream, status, text, len(text)
            )
        return True

    def flush(self):
        """Send the replies; True if frames wait to be decoded after that."""
        self.connections.send_dirty()
        return self.connections.has_work()

    def late_size(self, uint64_t token, uint32_t stream_id):
        """Return how many bytes of an answer wait for the peer; -1 if the stream is
        gone.
        """
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        return -1 if stream == NULL else pending_size(&stream.late)

    def want_room(self, uint64_t token, uint32_t stream_id):
        """Ask for a ROOM event; False if no bytes of the stream wait."""
        cdef Peer *peer = self.find_peer(token)
        cdef Stream *stream = self.find_open(peer, stream_id)
        if stream == NULL or pending_size(&stream.late) == 0:
            return False
        stream.is_room_wanted = True
        return True

    def go_away(self, uint64_t token, bint is_final):
        """Announce that the connection will end; `is_final`: no new stream is served.

        False if the connection is gone, or speaks another protocol.
        """
        cdef Peer *peer = self.find_peer(token)
        if peer == NULL or peer.is_failed:
            return False
        push_goaway(
            self.connections, peer, peer.last_id if is_final else WINDOW_LIMIT,
            NO_ERROR, b"the broker stops",
        )
        return True

    def stream_count(self, uint64_t token):
        """Return the open streams of a connection; -1 if it speaks another protocol."""
        cdef Peer *peer = self.find_peer(token)
        return -1 if peer == NULL else peer.streams.count
