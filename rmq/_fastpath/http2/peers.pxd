from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.http2.hpack cimport HeaderTable
from rmq._fastpath.http2.streams cimport StreamTable
from rmq._fastpath.reactor.buffers cimport Buffer, MemoryBudget

cdef enum:
    DEFAULT_WINDOW = 65_535
    DEFAULT_FRAME_SIZE = 16_384
    WINDOW_LIMIT = 0x7FFFFFFF
    # limits that rmq announces
    HEADER_TABLE_SIZE = 2_048
    STREAM_LIMIT = 1_000
    STREAM_WINDOW = 1 << 20
    CONNECTION_WINDOW = 4 << 20
    FRAME_SIZE = DEFAULT_FRAME_SIZE
    # resets of streams, by either side, and refused streams: at once, and a second
    RESET_LIMIT = 200
    RESETS_PER_S = 100
    # frames without a part of a call; each call allows some more
    EMPTY_FRAME_LIMIT = 1_000
    EMPTY_FRAMES_PER_S = 500
    EMPTY_FRAMES_PER_CALL = 3
    # metadata of the open streams of a connection: 1,000 calls of SDKs have 600 KB
    METADATA_TOTAL = 1 << 20

cdef struct Bucket:             # a rate limit
    int64_t left
    int64_t at_ms               # time at which `left` was computed

cdef struct Peer:               # the state of one connection
    uint32_t index              # index of its slot
    StreamTable streams
    HeaderTable headers         # header table of its requests
    Buffer block                # a header block in several frames
    uint32_t last_id
    uint32_t continued_id       # the stream of `block`; 0: there is no block
    uint8_t continued_flags
    uint8_t continuations       # frames of `block` so far
    bint has_preface
    bint has_settings
    bint is_failed              # GOAWAY with an error is sent: nothing is read any more
    int32_t send_window
    int32_t initial_window      # initial window of the peer's streams
    uint32_t frame_size         # largest frame that the peer accepts
    int32_t receive_window
    int64_t late_size           # bytes that wait in all streams
    int64_t part_size
    int64_t metadata_size
    int32_t waiting_calls       # calls that wait for Python
    int64_t waiting_size        # bytes of memory of these calls
    Bucket resets
    Bucket empty_frames

cdef Peer *make_peer(
    uint32_t index, int64_t now_ms, MemoryBudget *budget
) noexcept nogil
cdef void free_peer(Peer *peer, MemoryBudget *budget) noexcept nogil
cdef int64_t peer_size(const Peer *peer) noexcept nogil
cdef bint take_tokens(
    Bucket *bucket, int64_t cost, int64_t per_s, int64_t limit, int64_t now_ms
) noexcept nogil
