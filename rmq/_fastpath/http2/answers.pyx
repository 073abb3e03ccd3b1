"""Frames for the peer: settings, resets, and the answers of gRPC calls.

    HEADERS     :status 200, content-type
    DATA        for each message: 1 byte 0, 4 bytes size, the message
    HEADERS     grpc-status, grpc-message; it ends the stream

An error before any message is one HEADERS frame. No header makes an entry in the peer's
table, so answers may be sent in any order. If the answer ends before the request,
RST_STREAM with NO_ERROR follows.
Bytes that do not fit in the peer's windows wait in `late` of their stream. If more than
LATE_LIMIT bytes of a connection wait, the stream of the next message ends.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy, strlen

from rmq._fastpath.bytes.endian cimport put16, put32
from rmq._fastpath.http2.grpc_methods cimport NO_GRPC
from rmq._fastpath.http2.peers cimport (
    CONNECTION_WINDOW, DEFAULT_WINDOW, FRAME_SIZE, HEADER_TABLE_SIZE, STREAM_LIMIT,
    STREAM_WINDOW, Peer,
)
from rmq._fastpath.http2.request_head cimport HEADER_LIST_LIMIT
from rmq._fastpath.http2.streams cimport Stream, remove_stream
from rmq._fastpath.reactor.buffers cimport (
    Buffer, compact_buffer, pending_size, release_buffer, resize_buffer,
)
from rmq._fastpath.reactor.connections cimport Connections

cdef enum:
    TEXT_LIMIT = 512            # bytes of a grpc-message before percent-encoding
    LATE_START = 1024

cdef const uint8_t *OK_HEAD = (
    b"\x88"                                     # :status 200
    b"\x0f\x10\x10application/grpc"             # content-type
)
cdef int64_t OK_HEAD_SIZE = 20
cdef const uint8_t *STATUS_NAME = b"\x00\x0bgrpc-status"
cdef int64_t STATUS_NAME_SIZE = 13
cdef const uint8_t *TEXT_NAME = b"\x00\x0cgrpc-message"
cdef int64_t TEXT_NAME_SIZE = 14
cdef const uint8_t *ENCODINGS = b"\x00\x14grpc-accept-encoding\x08identity"
cdef int64_t ENCODINGS_SIZE = 31
cdef const uint8_t *NO_GRPC_HEAD = (
    b"\x08\x03415"                              # :status
    b"\x0f\x10\x0atext/plain"
)
cdef int64_t NO_GRPC_HEAD_SIZE = 18
cdef const uint8_t *NO_GRPC_TEXT = (
    b"This port speaks gRPC and RocketMQ's remoting protocol.\n"
)
cdef int64_t NO_GRPC_TEXT_SIZE = 56


cdef inline uint8_t *put_frame_head(
    uint8_t *p, int64_t size, int kind, int flags, uint32_t id
) noexcept nogil:
    put32(p, <uint32_t>(size << 8 | kind))
    p[4] = <uint8_t>flags
    put32(p + 5, id)
    return p + FRAME_HEAD


cdef void push_frame(
    Connections connections,
    Peer *peer,
    FrameType kind,
    int flags,
    uint32_t id,
    const uint8_t *data,
    int64_t size,
) noexcept nogil:
    """Append a frame to the outbox; a connection without room for it has failed."""
    cdef Buffer *outbox = &connections.slots[peer.index].outbox
    cdef uint8_t *p
    if not connections.reserve(peer.index, FRAME_HEAD + size):
        return
    p = put_frame_head(outbox.data + outbox.end, size, kind, flags, id)
    if size:
        memcpy(p, data, size)
    outbox.end += FRAME_HEAD + size
    connections.mark_dirty(peer.index)


cdef void push_number(
    Connections connections, Peer *peer, FrameType kind, uint32_t id, uint32_t number
) noexcept nogil:
    """Append RST_STREAM with an error, or WINDOW_UPDATE with its bytes."""
    cdef uint8_t[4] data
    put32(data, number)
    push_frame(connections, peer, kind, 0, id, data, 4)


cdef inline uint8_t *put_setting(uint8_t *p, int key, uint32_t value) noexcept nogil:
    put16(p, key)
    put32(p + 2, value)
    return p + 6


cdef void push_settings(Connections connections, Peer *peer) noexcept nogil:
    """Announce the limits of this side."""
    cdef uint8_t[30] data
    cdef uint8_t *p = data
    p = put_setting(p, 1, HEADER_TABLE_SIZE)
    p = put_setting(p, 3, STREAM_LIMIT)
    p = put_setting(p, 4, STREAM_WINDOW)
    p = put_setting(p, 5, FRAME_SIZE)
    p = put_setting(p, 6, HEADER_LIST_LIMIT)
    push_frame(connections, peer, SETTINGS, 0, 0, data, p - data)
    push_number(
        connections, peer, WINDOW_UPDATE, 0, CONNECTION_WINDOW - DEFAULT_WINDOW
    )
    peer.receive_window = CONNECTION_WINDOW


cdef void push_goaway(
    Connections connections, Peer *peer, uint32_t last_id, ErrorCode error,
    const char *text,
) noexcept nogil:
    """Append GOAWAY with a text for people."""
    cdef uint8_t[8 + TEXT_LIMIT] data
    cdef int64_t size = min(<int64_t>strlen(text), <int64_t>TEXT_LIMIT)
    put32(data, last_id)
    put32(data + 4, error)
    memcpy(data + 8, text, size)
    push_frame(connections, peer, GOAWAY, 0, 0, data, 8 + size)


# -- messages, and the peer's windows

cdef inline int64_t count_sendable(
    const Peer *peer, const Stream *stream, int64_t size
) noexcept nogil:
    """Return how many of `size` bytes the next DATA frame may have."""
    size = min(size, <int64_t>peer.frame_size)
    size = min(size, <int64_t>peer.send_window)
    return max(<int64_t>0, min(size, <int64_t>stream.send_window))


cdef inline void push_data(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil:
    push_frame(connections, peer, DATA, 0, stream.id, data, size)
    peer.send_window -= <int32_t>size
    stream.send_window -= <int32_t>size


cdef bint wait_for_window(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil:
    """Append to `late`; False if there is no memory for it."""
    cdef Buffer *late = &stream.late
    cdef int64_t wanted
    if late.end + size > late.capacity:
        compact_buffer(late)
    if late.end + size > late.capacity:
        wanted = max(late.end + size, min(2 * late.capacity, late.end + LATE_LIMIT))
        wanted = max(wanted, <int64_t>LATE_START)
        if not connections.may_grow(peer.index, late, wanted):
            return False
        if not resize_buffer(late, wanted, &connections.budget):
            return False
    memcpy(late.data + late.end, data, size)
    late.end += size
    peer.late_size += size
    return True


cdef bint send_part(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil:
    """Send as many bytes of the answer as the windows allow; the other bytes wait."""
    cdef int64_t part
    while size and not pending_size(&stream.late):
        part = count_sendable(peer, stream, size)
        if part == 0:
            break
        push_data(connections, peer, stream, data, part)
        data += part
        size -= part
    return size == 0 or wait_for_window(connections, peer, stream, data, size)


cdef void start_answer(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil:
    if not stream.is_answered:
        stream.is_answered = True
        push_frame(
            connections, peer, HEADERS, END_HEADERS, stream.id, OK_HEAD, OK_HEAD_SIZE
        )


cdef bint send_message(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil:
    """Send one message of an answer.

    False if too many bytes wait for the peer's windows: the caller has to reset the
    stream.
    """
    cdef uint8_t[MESSAGE_PREFIX] prefix
    if peer.late_size > LATE_LIMIT:
        return False
    start_answer(connections, peer, stream)
    prefix[0] = 0
    put32(prefix + 1, <uint32_t>size)
    if FRAME_HEAD + MESSAGE_PREFIX + size <= count_sendable(peer, stream, 1 << 30) and (
        not pending_size(&stream.late)
    ):
        push_whole_message(connections, peer, stream, prefix, data, size)
        return True
    return send_part(connections, peer, stream, prefix, MESSAGE_PREFIX) and (
        send_part(connections, peer, stream, data, size)
    )


cdef bint send_framed(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil:
    """Send messages that have their prefixes; False as `send_message`."""
    if peer.late_size > LATE_LIMIT:
        return False
    start_answer(connections, peer, stream)
    return send_part(connections, peer, stream, data, size)


cdef inline void push_whole_message(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *prefix,
    const uint8_t *data, int64_t size,
) noexcept nogil:
    """Append a message that fits in one DATA frame."""
    cdef Buffer *outbox = &connections.slots[peer.index].outbox
    cdef int64_t framed = MESSAGE_PREFIX + size
    cdef uint8_t *p
    if not connections.reserve(peer.index, FRAME_HEAD + framed):
        return
    p = put_frame_head(outbox.data + outbox.end, framed, DATA, 0, stream.id)
    memcpy(p, prefix, MESSAGE_PREFIX)
    if size:
        memcpy(p + MESSAGE_PREFIX, data, size)
    outbox.end += FRAME_HEAD + framed
    connections.mark_dirty(peer.index)
    peer.send_window -= <int32_t>framed
    stream.send_window -= <int32_t>framed


cdef bint send_late(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil:
    """Send bytes that waited for a window; True if this ended the stream."""
    cdef Buffer *late = &stream.late
    cdef int64_t part
    while pending_size(late):
        part = count_sendable(peer, stream, pending_size(late))
        if part == 0:
            return False
        push_data(connections, peer, stream, late.data + late.start, part)
        late.start += part
        peer.late_size -= part
    release_buffer(late, &connections.budget)
    return stream.is_ending and end_answer(connections, peer, stream)


# -- the end of an answer

cdef bint end_answer(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil:
    """End an answer after its messages; True if the stream is closed already."""
    if pending_size(&stream.late):
        stream.is_ending = True
        return False
    if stream.method == NO_GRPC:
        push_frame(connections, peer, DATA, END_STREAM, stream.id, NULL, 0)
    else:
        push_status(connections, peer, stream, OK, NULL, 0)
    close_stream(connections, peer, stream)
    return True


cdef void end_with_status(
    Connections connections, Peer *peer, Stream *stream, int32_t status,
    const uint8_t *text, int64_t size,
) noexcept nogil:
    """End an answer with a status of gRPC and a text; messages that wait are lost."""
    push_status(connections, peer, stream, status, text, size)
    close_stream(connections, peer, stream)


cdef void push_status(
    Connections connections, Peer *peer, Stream *stream, int32_t status,
    const uint8_t *text, int64_t size,
) noexcept nogil:
    """Append the last HEADERS of an answer, with a percent-encoded text."""
    cdef uint8_t[128 + 3 * TEXT_LIMIT] data
    cdef uint8_t *p = data
    if not stream.is_answered:
        stream.is_answered = True
        memcpy(p, OK_HEAD, OK_HEAD_SIZE)
        p += OK_HEAD_SIZE
    memcpy(p, STATUS_NAME, STATUS_NAME_SIZE)
    p += STATUS_NAME_SIZE
    p[0] = 1 + (status >= 10)
    p[1] = 48 + <uint8_t>(status // 10 if status >= 10 else status)
    p[2] = 48 + <uint8_t>(status % 10)
    p += 1 + p[0]
    if status == UNIMPLEMENTED:
        memcpy(p, ENCODINGS, ENCODINGS_SIZE)
        p += ENCODINGS_SIZE
    if size:
        memcpy(p, TEXT_NAME, TEXT_NAME_SIZE)
        p = put_percent_text(p + TEXT_NAME_SIZE, text, min(size, <int64_t>TEXT_LIMIT))
    push_frame(
        connections, peer, HEADERS, END_HEADERS | END_STREAM, stream.id, data, p - data
    )


cdef uint8_t *put_percent_text(
    uint8_t *p, const uint8_t *text, int64_t size
) noexcept nogil:
    """Write a value of HPACK: its length, and the text with percent codes."""
    cdef int64_t i, length = 0
    cdef uint8_t letter
    for i in range(size):
        length += 1 if is_plain(text[i]) else 3
    if length < 127:
        p[0] = <uint8_t>length
        p += 1
    else:
        p[0] = 127
        length -= 127
        p += 1
        while length >= 128:
            p[0] = <uint8_t>(length & 127 | 128)
            length >>= 7
            p += 1
        p[0] = <uint8_t>length
        p += 1
    for i in range(size):
        letter = text[i]
        if is_plain(letter):
            p[0] = letter
            p += 1
        else:
            p[0] = 37
            p[1] = hex_digit(letter >> 4)
            p[2] = hex_digit(letter & 15)
            p += 3
    return p


cdef inline bint is_plain(uint8_t letter) noexcept nogil:
    return 32 <= letter <= 126 and letter != 37


cdef inline uint8_t hex_digit(uint8_t value) noexcept nogil:
    return 48 + value if value < 10 else 55 + value


cdef void answer_no_grpc(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil:
    """Answer a request that is no call of gRPC: HTTP's 415 and a text."""
    stream.is_answered = True
    push_frame(
        connections, peer, HEADERS, END_HEADERS, stream.id, NO_GRPC_HEAD,
        NO_GRPC_HEAD_SIZE,
    )
    send_part(connections, peer, stream, NO_GRPC_TEXT, NO_GRPC_TEXT_SIZE)
    end_answer(connections, peer, stream)


cdef void close_stream(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil:
    if not stream.is_ended:
        push_number(connections, peer, RST_STREAM, stream.id, NO_ERROR)
    drop_stream(connections, peer, stream)


cdef void drop_stream(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil:
    """Forget a stream and its bytes."""
    peer.late_size -= pending_size(&stream.late)
    peer.part_size -= pending_size(&stream.part)
    peer.metadata_size -= stream.metadata_size
    remove_stream(&peer.streams, stream, &connections.budget)
