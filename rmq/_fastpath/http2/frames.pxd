from libc.stdint cimport int64_t, uint8_t, uint32_t

from rmq._fastpath.http2.answers cimport ErrorCode
from rmq._fastpath.http2.peers cimport Peer
from rmq._fastpath.http2.request_head cimport RequestHead
from rmq._fastpath.http2.streams cimport Stream
from rmq._fastpath.reactor.connections cimport Connections, WireProtocol

cdef struct Frame:
    int64_t size                # size of the payload
    const uint8_t *payload
    uint8_t kind
    uint8_t flags
    uint32_t id

cdef class Http2(WireProtocol):
    cdef Connections connections
    cdef RequestHead head       # head from the header block that is read now
    # sums
    cdef readonly int64_t peers         # open connections
    cdef readonly int64_t frames
    cdef readonly int64_t requests
    cdef readonly int64_t resets        # resets of streams, by either side
    cdef readonly int64_t refused       # refused streams
    # connections that ended because the peer broke a rule
    cdef readonly int64_t failures
    cdef readonly int64_t floods  # connections that ended because of a limit per second

    cdef int64_t read_frame(
        self, Peer *peer, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef bint serve_frame(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint read_headers(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint read_continuation(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint save_block(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint read_block(
        self, Peer *peer, uint32_t id, int flags, const uint8_t *p, int64_t size
    ) noexcept nogil
    cdef bint begin_stream(self, Peer *peer, uint32_t id, int flags) noexcept nogil
    cdef bint read_trailers(
        self, Peer *peer, Stream *stream, int flags
    ) noexcept nogil
    cdef bint read_data(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint give_window_back(
        self, Peer *peer, Stream *stream, int64_t size, bint is_end
    ) noexcept nogil
    cdef bint read_settings(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint change_windows(self, Peer *peer, uint32_t window) noexcept nogil
    cdef bint read_window_update(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint read_ping(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint read_reset(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint read_priority(self, Peer *peer, Frame *frame) noexcept nogil
    cdef void send_all_late(self, Peer *peer) noexcept nogil
    cdef bint strip_padding(self, Peer *peer, Frame *frame) noexcept nogil
    cdef bint count_empty(self, Peer *peer) noexcept nogil
    cdef bint count_reset(self, Peer *peer) noexcept nogil
    cdef bint fail(
        self, Peer *peer, ErrorCode error, const char *text
    ) noexcept nogil
    cdef bint reset_stream(
        self, Peer *peer, Stream *stream, uint32_t id, ErrorCode error
    ) noexcept nogil
    # functions of the protocol above HTTP/2
    cdef bint on_head(self, Peer *peer, Stream *stream) noexcept nogil
    cdef bint on_data(
        self, Peer *peer, Stream *stream, const uint8_t *p, int64_t size, bint is_end
    ) noexcept nogil
    cdef void on_drop(self, Peer *peer, Stream *stream) noexcept nogil
    cdef void on_room(self, Peer *peer, Stream *stream) noexcept nogil
