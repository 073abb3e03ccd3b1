from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.header_scan cimport RawHeader
from rmq._fastpath.native cimport FIELD_LIMIT, Frame

cdef enum:
    HOLE_LIMIT = 8
    OPAQUE_HOLE = -1
    TEMPLATES_PER_CONNECTION = 4

cdef struct Hole:
    int32_t start               # in the learned header
    int32_t end
    int32_t field               # of the frame, or OPAQUE_HOLE

cdef struct Template:
    Frame frame                 # as it was learned; its texts lie in `header`
    void *owner                 # what the one who learned it knows it by
    int32_t field_count
    int32_t hole_count
    Hole holes[HOLE_LIMIT]
    int32_t size
    uint8_t header[1]           # `size` bytes

cdef struct LearnedHeaders:     # of one connection
    Template *templates[TEMPLATES_PER_CONNECTION]
    uint32_t learned            # so far: the oldest makes room
    uint64_t matched            # headers that a template has read

cdef void forget_headers(LearnedHeaders *known) noexcept nogil
cdef Template *learn_template(
    const uint8_t *header,
    int64_t size,
    const RawHeader *raw,
    const Frame *frame,
    int32_t field_count,
    const int32_t *varying,
    int32_t varying_count,
    void *owner,
) noexcept nogil
cdef bint match_template(
    const Template *template, const uint8_t *header, int64_t size, Frame *frame
) noexcept nogil
