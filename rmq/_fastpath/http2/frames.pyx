"""Http2: the frames that clients send on a connection (RFC 9113).

    size (3 bytes), kind (1), flags (1), stream id (4), payload

all big-endian. A connection begins with PREFACE, and the first frame is SETTINGS. A
header block is HEADERS and CONTINUATION frames without other frames between them. A
broken rule of the connection is answered with GOAWAY, and the connection ends; a broken
rule of one stream with RST_STREAM.

Limits: a header block has BLOCK_LIMIT bytes and CONTINUATION_LIMIT more frames, and its
headers HEADER_LIST_LIMIT; a connection has STREAM_LIMIT streams. Resets take from one
rate limit, and frames without data from another; if a limit is used up, the connection
ends with ENHANCE_YOUR_CALM. In one poll a connection has FRAMES_PER_POLL, and it is not
read while CALL_LIMIT of its calls, or WAITING_LIMIT bytes of calls, wait for Python.
All memory of a connection counts in the budget of all buffers.

The functions return False if the connection has failed. Nothing here touches a Python
object; the class above gets data in `on_data`, and the ends of streams in `on_drop`.
"""

# tidy: long — one table: the frames of HTTP/2, and their rules

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from rmq._fastpath.bytes.endian cimport get16, get32
from rmq._fastpath.http2.answers cimport (
    ACK, CONTINUATION, DATA, END_HEADERS, END_STREAM, ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR, FRAME_HEAD, FRAME_SIZE_ERROR, GOAWAY, HAS_PRIORITY, HEADERS,
    INTERNAL_ERROR, PADDED, PING, PRIORITY, PROTOCOL_ERROR, PUSH_PROMISE,
    REFUSED_STREAM, RST_STREAM, SETTINGS, STREAM_CLOSED, WINDOW_UPDATE, ErrorCode,
    drop_stream, push_frame, push_goaway, push_number, push_settings, send_late,
)
from rmq._fastpath.http2.grpc_methods cimport NO_GRPC
from rmq._fastpath.http2.hpack cimport BLOCK_LIMIT, decode_block, table_memory
from rmq._fastpath.http2.peers cimport (
    CONNECTION_WINDOW, DEFAULT_FRAME_SIZE, EMPTY_FRAMES_PER_S, EMPTY_FRAME_LIMIT,
    FRAME_SIZE, HEADER_TABLE_SIZE, RESETS_PER_S, RESET_LIMIT, STREAM_LIMIT,
    STREAM_WINDOW, WINDOW_LIMIT, Peer, free_peer, make_peer, peer_size, take_tokens,
)
from rmq._fastpath.http2.request_head cimport (
    HEADER_LIST_LIMIT, begin_head, is_well_formed, visit_header,
)
from rmq._fastpath.http2.streams cimport Stream, add_stream, find_stream
from rmq._fastpath.reactor.buffers cimport (
    Buffer, MemoryBudget, pending_size, release_buffer, resize_buffer,
)
from rmq._fastpath.reactor.connections cimport (
    OPEN, OUTBOX_PAUSE, OUT_OF_MEMORY, PEER_FLOODS, RULE_BROKEN, Connections, Slot,
    WireProtocol,
)

cdef enum:
    PREFACE_SIZE = 24
    CONTINUATION_LIMIT = 8      # maximum CONTINUATION frames after HEADERS
    FRAMES_PER_POLL = 512
    CALL_LIMIT = 32
    WAITING_LIMIT = 8 << 20     # bytes of a connection's calls that wait for Python
    FRAME_SIZE_LIMIT = 0xFFFFFF

cdef const uint8_t *PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


cdef class Http2(WireProtocol):
    """All connections of a reactor that speak HTTP/2."""

    def __cinit__(self, Connections connections not None):
        self.connections = connections

    # -- connections

    cdef void cut_frames(self, uint32_t index) noexcept nogil:
        """Serve the whole frames of an inbox, up to the limits of a poll."""
        cdef Slot *slot = self.connections.slots[index]
        cdef Buffer *inbox = &slot.inbox
        cdef Peer *peer = <Peer *>slot.wire
        cdef int64_t used
        cdef int frames = 0
        if slot.state != OPEN:
            return
        if peer == NULL:
            peer = make_peer(
                index, self.connections.now_ms, &self.connections.budget
            )
            if peer == NULL:
                self.connections.fail(index, OUT_OF_MEMORY)
                return
            slot.wire = peer
            self.peers += 1
        while slot.state == OPEN:
            if pending_size(&slot.outbox) > OUTBOX_PAUSE:
                slot.is_paused = True
                return
            if frames >= FRAMES_PER_POLL or peer.waiting_calls >= CALL_LIMIT or (
                peer.waiting_size >= WAITING_LIMIT
            ):
                self.connections.cut_later(index)
                return
            used = self.read_frame(
                peer, inbox.data + inbox.start, pending_size(inbox)
            )
            if used == 0:
                return
            if used < 0:
                inbox.start = inbox.end     # no more bytes of it are read
                return
            inbox.start += used
            slot.frame_ms = self.connections.now_ms
            slot.has_sent_frame = True
            self.frames += 1
            frames += 1

    cdef void free_state(self, Slot *slot, MemoryBudget *budget) noexcept nogil:
        """Free the state of a connection that ends."""
        free_peer(<Peer *>slot.wire, budget)
        slot.wire = NULL
        self.peers -= 1

    cdef int64_t memory_size(self, const Slot *slot) noexcept nogil:
        """Return the memory of a connection's state."""
        return peer_size(<Peer *>slot.wire)

    cdef bint fail(
        self, Peer *peer, ErrorCode error, const char *text
    ) noexcept nogil:
        """End a connection that broke a rule; always False."""
        push_goaway(self.connections, peer, peer.last_id, error, text)
        peer.is_failed = True
        self.failures += 1
        if error == ENHANCE_YOUR_CALM:
            self.floods += 1
            self.connections.fail(peer.index, PEER_FLOODS)
        else:
            self.connections.fail(peer.index, RULE_BROKEN)
        return False

    cdef bint count_empty(self, Peer *peer) noexcept nogil:
        """Count a frame that contains no part of a call."""
        if take_tokens(
            &peer.empty_frames, 1, EMPTY_FRAMES_PER_S, EMPTY_FRAME_LIMIT,
            self.connections.now_ms,
        ):
            return True
        return self.fail(peer, ENHANCE_YOUR_CALM, b"too many frames without content")

    cdef bint count_reset(self, Peer *peer) noexcept nogil:
        """Count the reset of a stream, by the peer or because of it."""
        self.resets += 1
        if take_tokens(
            &peer.resets, 1, RESETS_PER_S, RESET_LIMIT, self.connections.now_ms
        ):
            return True
        return self.fail(peer, ENHANCE_YOUR_CALM, b"too many resets of streams")

    cdef bint reset_stream(
        self, Peer *peer, Stream *stream, uint32_t id, ErrorCode error
    ) noexcept nogil:
        """Reset a stream; `stream` is NULL for an id without a stream."""
        push_number(self.connections, peer, RST_STREAM, id, error)
        if stream != NULL:
            self.on_drop(peer, stream)
            drop_stream(self.connections, peer, stream)
        return self.count_reset(peer)

    # -- frames

    cdef int64_t read_frame(
        self, Peer *peer, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Serve one frame; return its bytes, 0 if it is not whole, -1 after a failure.
        """
        cdef Frame frame
        if not peer.has_preface:
            if memcmp(p, PREFACE, min(size, <int64_t>PREFACE_SIZE)):
                self.fail(peer, PROTOCOL_ERROR, b"wrong preface of HTTP/2")
                return -1
            if size < PREFACE_SIZE:
                return 0
            peer.has_preface = True
            push_settings(self.connections, peer)
            return PREFACE_SIZE
        if size < FRAME_HEAD:
            return 0
        frame.size = get32(p) >> 8
        frame.kind, frame.flags = p[3], p[4]
        frame.id = get32(p + 5) & WINDOW_LIMIT
        frame.payload = p + FRAME_HEAD
        if frame.size > FRAME_SIZE:
            self.fail(peer, FRAME_SIZE_ERROR, b"a frame is larger than 16,384 bytes")
            return -1
        if size < FRAME_HEAD + frame.size:
            return 0
        size = FRAME_HEAD + frame.size
        if peer.continued_id and frame.kind != CONTINUATION:
            self.fail(peer, PROTOCOL_ERROR, b"a header block was interrupted")
            return -1
        if not peer.has_settings and frame.kind != SETTINGS:
            self.fail(peer, PROTOCOL_ERROR, b"the first frame is not SETTINGS")
            return -1
        return size if self.serve_frame(peer, &frame) else -1

    cdef bint serve_frame(self, Peer *peer, Frame *frame) noexcept nogil:
        if frame.kind == DATA:
            return self.read_data(peer, frame)
        if frame.kind == HEADERS:
            return self.read_headers(peer, frame)
        if frame.kind == CONTINUATION:
            return self.read_continuation(peer, frame)
        if frame.kind == WINDOW_UPDATE:
            return self.read_window_update(peer, frame)
        if frame.kind == SETTINGS:
            return self.read_settings(peer, frame)
        if frame.kind == PING:
            return self.read_ping(peer, frame)
        if frame.kind == RST_STREAM:
            return self.read_reset(peer, frame)
        if frame.kind == PRIORITY:
            return self.read_priority(peer, frame)
        if frame.kind == PUSH_PROMISE:
            return self.fail(peer, PROTOCOL_ERROR, b"PUSH_PROMISE from a client")
        if frame.kind == GOAWAY and frame.id:
            return self.fail(peer, PROTOCOL_ERROR, b"GOAWAY on a stream")
        return self.count_empty(peer)

    cdef bint strip_padding(self, Peer *peer, Frame *frame) noexcept nogil:
        cdef int64_t padding
        if not frame.flags & PADDED:
            return True
        if frame.size < 1 or frame.payload[0] >= frame.size:
            return self.fail(peer, PROTOCOL_ERROR, b"more padding than payload")
        padding = frame.payload[0]
        frame.payload += 1
        frame.size -= 1 + padding
        return True

    # -- header blocks

    cdef bint read_headers(self, Peer *peer, Frame *frame) noexcept nogil:
        if frame.id == 0:
            return self.fail(peer, PROTOCOL_ERROR, b"HEADERS without a stream")
        if not self.strip_padding(peer, frame):
            return False
        if frame.flags & HAS_PRIORITY:
            if frame.size < 5:
                return self.fail(peer, FRAME_SIZE_ERROR, b"HEADERS is too short")
            if get32(frame.payload) & WINDOW_LIMIT == frame.id:
                return self.fail(
                    peer, PROTOCOL_ERROR, b"a stream depends on itself"
                )
            frame.payload += 5
            frame.size -= 5
        if frame.flags & END_HEADERS:
            return self.read_block(
                peer, frame.id, frame.flags, frame.payload, frame.size
            )
        peer.continued_id = frame.id
        peer.continued_flags = frame.flags
        peer.continuations = 0
        return self.save_block(peer, frame)

    cdef bint read_continuation(self, Peer *peer, Frame *frame) noexcept nogil:
        cdef uint32_t id = peer.continued_id
        cdef bint is_right
        if id == 0 or id != frame.id:
            return self.fail(peer, PROTOCOL_ERROR, b"CONTINUATION without HEADERS")
        peer.continuations += 1
        if peer.continuations > CONTINUATION_LIMIT:
            return self.fail(
                peer, ENHANCE_YOUR_CALM, b"a header block in more than 9 frames"
            )
        if not self.save_block(peer, frame):
            return False
        if not frame.flags & END_HEADERS:
            return True
        peer.continued_id = 0
        is_right = self.read_block(
            peer, id, peer.continued_flags, peer.block.data, peer.block.end
        )
        release_buffer(&peer.block, &self.connections.budget)
        return is_right

    cdef bint save_block(self, Peer *peer, Frame *frame) noexcept nogil:
        """Append to the header block that is not whole yet."""
        cdef Buffer *block = &peer.block
        cdef int64_t size = block.end + frame.size
        if size > BLOCK_LIMIT:
            return self.fail(
                peer, ENHANCE_YOUR_CALM, b"a header block of more than 32 KiB"
            )
        if size > block.capacity and not (
            self.connections.may_grow(peer.index, block, size)
            and resize_buffer(block, size, &self.connections.budget)
        ):
            return self.fail(peer, INTERNAL_ERROR, b"no memory")
        if frame.size:
            memcpy(block.data + block.end, frame.payload, frame.size)
        block.end = size
        return True

    cdef bint read_block(
        self, Peer *peer, uint32_t id, int flags, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Read a whole header block: the head of a request, or its trailers."""
        cdef Stream *stream = find_stream(&peer.streams, id)
        cdef int error
        if stream == NULL and id & 1 == 0:
            return self.fail(peer, PROTOCOL_ERROR, b"a request on an even stream")
        if stream == NULL and id <= peer.last_id:
            return self.fail(peer, STREAM_CLOSED, b"HEADERS on a closed stream")
        begin_head(&self.head, stream != NULL)
        self.connections.budget.used -= table_memory(&peer.headers)
        error = decode_block(&peer.headers, p, size, visit_header, &self.head)
        self.connections.budget.used += table_memory(&peer.headers)
        if error:
            return self.fail(peer, <ErrorCode>error, b"the header block is broken")
        if stream != NULL:
            return self.read_trailers(peer, stream, flags)
        peer.last_id = id
        self.requests += 1
        return self.begin_stream(peer, id, flags)

    cdef bint begin_stream(self, Peer *peer, uint32_t id, int flags) noexcept nogil:
        """Open a stream with the head that was read."""
        cdef Stream *stream
        cdef bint is_end = flags & END_STREAM
        if self.head.list_size > HEADER_LIST_LIMIT:
            return self.reset_stream(peer, NULL, id, ENHANCE_YOUR_CALM)
        if not is_well_formed(&self.head) or (is_end and self.head.content_length > 0):
            return self.reset_stream(peer, NULL, id, PROTOCOL_ERROR)
        stream = NULL
        if peer.streams.count < STREAM_LIMIT:
            stream = add_stream(&peer.streams, id, &self.connections.budget)
        if stream == NULL:
            self.refused += 1
            return self.reset_stream(peer, NULL, id, REFUSED_STREAM)
        stream.method = self.head.method
        if not (self.head.is_grpc and self.head.is_post):
            stream.method = NO_GRPC
        stream.send_window = peer.initial_window
        stream.receive_window = STREAM_WINDOW
        stream.content_left = self.head.content_length
        if not self.on_head(peer, stream):
            return False
        stream = find_stream(&peer.streams, id)
        if stream == NULL or not is_end:
            return True
        stream.is_ended = True
        return self.on_data(peer, stream, NULL, 0, True)

    cdef bint read_trailers(
        self, Peer *peer, Stream *stream, int flags
    ) noexcept nogil:
        if stream.is_ended:
            return self.reset_stream(peer, stream, stream.id, STREAM_CLOSED)
        if not flags & END_STREAM or not is_well_formed(&self.head) or (
            stream.content_left > 0 or self.head.list_size > HEADER_LIST_LIMIT
        ):
            return self.reset_stream(peer, stream, stream.id, PROTOCOL_ERROR)
        stream.is_ended = True
        return self.on_data(peer, stream, NULL, 0, True)

    # -- data, and the windows of this side

    cdef bint read_data(self, Peer *peer, Frame *frame) noexcept nogil:
        cdef Stream *stream
        cdef int64_t size = frame.size
        cdef bint is_end = frame.flags & END_STREAM
        if frame.id == 0 or frame.id > peer.last_id or frame.id & 1 == 0:
            return self.fail(peer, PROTOCOL_ERROR, b"DATA on an idle stream")
        if size > peer.receive_window:
            return self.fail(peer, FLOW_CONTROL_ERROR, b"more DATA than allowed")
        stream = find_stream(&peer.streams, frame.id)
        if not self.strip_padding(peer, frame):
            return False
        if not self.give_window_back(peer, stream, size, is_end):
            return False
        if frame.size == 0 and not is_end and not self.count_empty(peer):
            return False
        if stream == NULL:      # this side may have ended the stream just before
            push_number(self.connections, peer, RST_STREAM, frame.id, STREAM_CLOSED)
            return self.count_empty(peer)
        if stream.is_ended:
            return self.reset_stream(peer, stream, frame.id, STREAM_CLOSED)
        if stream.content_left >= 0:
            stream.content_left -= frame.size
            if stream.content_left < 0 or (is_end and stream.content_left > 0):
                return self.reset_stream(peer, stream, frame.id, PROTOCOL_ERROR)
        stream.is_ended = is_end
        return self.on_data(peer, stream, frame.payload, frame.size, is_end)

    cdef bint give_window_back(
        self, Peer *peer, Stream *stream, int64_t size, bint is_end
    ) noexcept nogil:
        """Count received bytes; open the windows again when half of them is used."""
        peer.receive_window -= <int>size
        if peer.receive_window < CONNECTION_WINDOW // 2:
            push_number(
                self.connections, peer, WINDOW_UPDATE, 0,
                CONNECTION_WINDOW - peer.receive_window,
            )
            peer.receive_window = CONNECTION_WINDOW
        if stream == NULL:
            return True
        stream.receive_window -= <int>size
        if stream.receive_window < 0:
            return self.fail(peer, FLOW_CONTROL_ERROR, b"more DATA than allowed")
        if stream.receive_window < STREAM_WINDOW // 2 and not is_end:
            push_number(
                self.connections, peer, WINDOW_UPDATE, stream.id,
                STREAM_WINDOW - stream.receive_window,
            )
            stream.receive_window = STREAM_WINDOW
        return True

    # -- settings, and the windows of the peer

    cdef bint read_settings(self, Peer *peer, Frame *frame) noexcept nogil:
        cdef int64_t i
        cdef int key
        cdef uint32_t value
        if frame.id:
            return self.fail(peer, PROTOCOL_ERROR, b"SETTINGS on a stream")
        if frame.size % 6 or (frame.flags & ACK and frame.size):
            return self.fail(peer, FRAME_SIZE_ERROR, b"wrong size of SETTINGS")
        if not self.count_empty(peer):
            return False
        if frame.flags & ACK:
            peer.headers.announced = HEADER_TABLE_SIZE
            return True
        for i in range(0, frame.size, 6):
            key = get16(frame.payload + i)
            value = get32(frame.payload + i + 2)
            if key == 2 and value > 1:
                return self.fail(peer, PROTOCOL_ERROR, b"ENABLE_PUSH is no flag")
            if key == 4 and not (
                self.count_empty(peer) and self.change_windows(peer, value)
            ):
                return False
            if key == 5:
                if not DEFAULT_FRAME_SIZE <= value <= FRAME_SIZE_LIMIT:
                    return self.fail(peer, PROTOCOL_ERROR, b"wrong MAX_FRAME_SIZE")
                peer.frame_size = value
        peer.has_settings = True
        push_frame(self.connections, peer, SETTINGS, ACK, 0, NULL, 0)
        self.send_all_late(peer)
        return True

    cdef bint change_windows(self, Peer *peer, uint32_t window) noexcept nogil:
        """Set the first window of streams, and change the windows of open streams."""
        cdef int64_t change = <int64_t>window - peer.initial_window
        cdef Stream *stream
        cdef uint32_t i
        if window > WINDOW_LIMIT:
            return self.fail(peer, FLOW_CONTROL_ERROR, b"a window is too large")
        for i in range(peer.streams.mask + 1 if peer.streams.count else 0):
            stream = &peer.streams.places[i]
            if stream.id == 0:
                continue
            if stream.send_window + change > WINDOW_LIMIT:
                return self.fail(peer, FLOW_CONTROL_ERROR, b"a window is too large")
            stream.send_window += <int>change
        peer.initial_window = window
        return True

    cdef bint read_window_update(self, Peer *peer, Frame *frame) noexcept nogil:
        cdef Stream *stream
        cdef uint32_t added
        if frame.size != 4:
            return self.fail(peer, FRAME_SIZE_ERROR, b"wrong size of WINDOW_UPDATE")
        if not self.count_empty(peer):
            return False
        added = get32(frame.payload) & WINDOW_LIMIT
        if frame.id == 0:
            if added == 0:
                return self.fail(peer, PROTOCOL_ERROR, b"a window grows by 0")
            if <int64_t>peer.send_window + added > WINDOW_LIMIT:
                return self.fail(peer, FLOW_CONTROL_ERROR, b"a window is too large")
            peer.send_window += added
            self.send_all_late(peer)
            return True
        stream = find_stream(&peer.streams, frame.id)
        if stream == NULL:
            if frame.id > peer.last_id or frame.id & 1 == 0:
                return self.fail(
                    peer, PROTOCOL_ERROR, b"WINDOW_UPDATE on an idle stream"
                )
            return True
        if added == 0:
            return self.reset_stream(peer, stream, frame.id, PROTOCOL_ERROR)
        if <int64_t>stream.send_window + added > WINDOW_LIMIT:
            return self.reset_stream(peer, stream, frame.id, FLOW_CONTROL_ERROR)
        stream.send_window += added
        if pending_size(&stream.late) and (
            not send_late(self.connections, peer, stream)
        ):
            self.on_room(peer, stream)
        return True

    cdef void send_all_late(self, Peer *peer) noexcept nogil:
        """Send as many waiting bytes of all streams as the windows allow now."""
        cdef Stream *stream
        cdef uint32_t i = 0
        if peer.late_size == 0:
            return
        while peer.streams.count and i <= peer.streams.mask and peer.send_window > 0:
            stream = &peer.streams.places[i]
            if stream.id and pending_size(&stream.late):
                if send_late(self.connections, peer, stream):
                    continue    # another stream may use its slot now
                self.on_room(peer, stream)
            i += 1

    # -- the other frames

    cdef bint read_ping(self, Peer *peer, Frame *frame) noexcept nogil:
        if frame.id:
            return self.fail(peer, PROTOCOL_ERROR, b"PING on a stream")
        if frame.size != 8:
            return self.fail(peer, FRAME_SIZE_ERROR, b"wrong size of PING")
        if not self.count_empty(peer):
            return False
        if not frame.flags & ACK:
            push_frame(self.connections, peer, PING, ACK, 0, frame.payload, 8)
        return True

    cdef bint read_reset(self, Peer *peer, Frame *frame) noexcept nogil:
        cdef Stream *stream
        if frame.id == 0 or frame.id > peer.last_id or frame.id & 1 == 0:
            return self.fail(peer, PROTOCOL_ERROR, b"RST_STREAM on an idle stream")
        if frame.size != 4:
            return self.fail(peer, FRAME_SIZE_ERROR, b"wrong size of RST_STREAM")
        stream = find_stream(&peer.streams, frame.id)
        if stream != NULL:
            self.on_drop(peer, stream)
            drop_stream(self.connections, peer, stream)
        return self.count_reset(peer)

    cdef bint read_priority(self, Peer *peer, Frame *frame) noexcept nogil:
        """Check PRIORITY, which has no effect."""
        if frame.id == 0:
            return self.fail(peer, PROTOCOL_ERROR, b"PRIORITY without a stream")
        if frame.size != 5:
            return self.reset_stream(
                peer, find_stream(&peer.streams, frame.id), frame.id, FRAME_SIZE_ERROR
            )
        if get32(frame.payload) & WINDOW_LIMIT == frame.id:
            return self.reset_stream(
                peer, find_stream(&peer.streams, frame.id), frame.id, PROTOCOL_ERROR
            )
        return self.count_empty(peer)

    # -- what a protocol above HTTP/2 does

    cdef bint on_head(self, Peer *peer, Stream *stream) noexcept nogil:
        """A request has begun, and `self.head` has its headers."""
        return True

    cdef bint on_data(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size, bint is_end
    ) noexcept nogil:
        """Bytes of a request have come, or only its end."""
        return True

    cdef void on_drop(self, Peer *peer, Stream *stream) noexcept nogil:
        """A stream ends before its answer."""

    cdef void on_room(self, Peer *peer, Stream *stream) noexcept nogil:
        """Some bytes that waited for the window of a stream were sent."""
