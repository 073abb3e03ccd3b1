from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.http2.proto_wire cimport Span

cdef enum MessageType:
    UNSPECIFIED = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3

cdef struct SentMessage:  # the only message of a call; spans are parts of its bytes
    Span message
    Span system                 # its system properties
    Span topic
    Span body
    Span message_id
    Span tag
    Span group
    Span trace_context
    Span born_host
    int64_t born_ms
    int64_t due_ms              # -1: no time of delivery
    int64_t queue_id
    MessageType kind
    bint is_compressed

cdef bint read_sent_message(
    const uint8_t *p, int64_t size, SentMessage *found
) noexcept nogil
cdef bint read_resource(const Span *resource, Span *name) noexcept nogil
cdef bint read_ms(const Span *time, int64_t *ms) noexcept nogil
cdef bint is_flat(const Span *message) noexcept nogil
cdef bint is_nested(
    const Span *message, const uint32_t *path, int depth
) noexcept nogil
cdef bint is_text(const Span *span) noexcept nogil
cdef bint is_tag(const Span *span) noexcept nogil
cdef bint is_mostly_body(
    const uint8_t *p, int64_t size, int64_t limit
) noexcept nogil
