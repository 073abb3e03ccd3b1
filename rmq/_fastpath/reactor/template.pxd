from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.reactor.header_scan cimport RawHeader
from rmq._fastpath.reactor.native cimport FIELD_LIMIT, Frame, Text

cdef enum:
    VARYING_LIMIT = 7           # fields of a handler
    HOLE_LIMIT = 9              # and the opaque, and a signature
    OPAQUE_HOLE = -1
    SIGNATURE_HOLE = -2
    NO_HOLE = -1
    PIECE_LIMIT = 19            # a constant before each hole and after the last
    SUBJECT_LIMIT = 5           # see RULE_FIELD_LIMIT
    TEMPLATES_PER_CONNECTION = 4

cdef struct Hole:
    int32_t start               # in the learned header
    int32_t end
    int32_t field               # of the frame, OPAQUE_HOLE or SIGNATURE_HOLE

cdef struct Piece:              # of the content that is signed
    int32_t hole                # whose value it is; NO_HOLE: a constant
    int32_t size                # of the constant

cdef struct Signing:            # how to check the signature of a header that matches
    int32_t signature           # its hole
    int32_t piece_count
    Piece pieces[PIECE_LIMIT]
    const uint8_t *constants    # one after another, without escapes
    int32_t subject_count
    int32_t subject_holes[SUBJECT_LIMIT]    # of the user and the fields of the rule
    Text subject[SUBJECT_LIMIT]     # texts without a hole

cdef struct Template:
    Frame frame                 # as it was learned; its texts lie in `header`
    void *owner                 # of the template, for its user
    int32_t field_count
    int32_t hole_count
    Hole holes[HOLE_LIMIT]
    bint is_signed
    Signing signing
    int32_t size
    uint8_t header[1]           # `size` bytes, and as many for the constants

cdef struct LearnedHeaders:     # of one connection
    Template *templates[TEMPLATES_PER_CONNECTION]
    uint32_t learned            # so far; a new one replaces the oldest
    uint64_t matched            # headers that a template has read

cdef void free_templates(LearnedHeaders *known) noexcept nogil
cdef Template *learn_template(
    const uint8_t *header,
    int64_t size,
    const RawHeader *raw,
    const Frame *frame,
    int32_t field_count,
    const int32_t *varying,
    int32_t varying_count,
    const Text *signature,
    void *owner,
) noexcept nogil
cdef bint match_template(
    const Template *template,
    const uint8_t *header,
    int64_t size,
    Frame *frame,
    Text *values,
) noexcept nogil
cdef int32_t hole_at(const Template *template, int64_t start) noexcept nogil
