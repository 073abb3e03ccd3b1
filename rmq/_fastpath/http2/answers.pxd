from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.http2.peers cimport Peer
from rmq._fastpath.http2.streams cimport Stream
from rmq._fastpath.reactor.connections cimport Connections

cdef enum FrameType:
    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9

cdef enum Flag:
    END_STREAM = 1
    ACK = 1
    END_HEADERS = 4
    PADDED = 8
    HAS_PRIORITY = 32

cdef enum ErrorCode:
    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    ENHANCE_YOUR_CALM = 11

cdef enum GrpcStatus:           # statuses in answers of compiled code
    OK = 0
    RESOURCE_EXHAUSTED = 8
    UNIMPLEMENTED = 12
    INTERNAL = 13

cdef enum:
    FRAME_HEAD = 9              # bytes of a frame's head
    MESSAGE_PREFIX = 5          # bytes before a message of gRPC: a flag, and the size
    LATE_LIMIT = 4 << 20        # maximum bytes that wait for the peer's windows

cdef void push_frame(
    Connections connections,
    Peer *peer,
    FrameType kind,
    int flags,
    uint32_t id,
    const uint8_t *data,
    int64_t size,
) noexcept nogil
cdef void push_number(
    Connections connections, Peer *peer, FrameType kind, uint32_t id, uint32_t number
) noexcept nogil
cdef void push_settings(Connections connections, Peer *peer) noexcept nogil
cdef void push_goaway(
    Connections connections, Peer *peer, uint32_t last_id, ErrorCode error,
    const char *text,
) noexcept nogil
cdef bint send_message(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil
cdef bint send_framed(
    Connections connections, Peer *peer, Stream *stream, const uint8_t *data,
    int64_t size,
) noexcept nogil
cdef bint end_answer(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil
cdef void end_with_status(
    Connections connections, Peer *peer, Stream *stream, int32_t status,
    const uint8_t *text, int64_t size,
) noexcept nogil
cdef void answer_no_grpc(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil
cdef bint send_late(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil
cdef void drop_stream(
    Connections connections, Peer *peer, Stream *stream
) noexcept nogil
