from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.reactor.header_scan cimport RawHeader
from rmq._fastpath.reactor.native cimport FIELD_LIMIT, Frame, Text

cdef enum:
    VARYING_LIMIT = 7           # maximum fields of a handler that vary
    HOLE_LIMIT = 9              # the varying fields, the opaque and a signature
    OPAQUE_HOLE = -1
    SIGNATURE_HOLE = -2
    NO_HOLE = -1
    PIECE_LIMIT = 19            # a constant before each hole and after the last
    SUBJECT_LIMIT = 5           # see RULE_FIELD_LIMIT
    TEMPLATES_PER_CONNECTION = 4

cdef struct Hole:
    int32_t start               # position in the learned header
    int32_t end
    int32_t field  # index of the field of the frame, OPAQUE_HOLE or SIGNATURE_HOLE

cdef struct Piece:              # a piece of the content that is signed
    int32_t hole                # hole with the value; NO_HOLE: a constant
    int32_t size                # size of the constant

cdef struct Signing:            # how to check the signature of a header that matches
    int32_t signature           # hole of the signature
    int32_t piece_count
    Piece pieces[PIECE_LIMIT]
    const uint8_t *constants    # one after another, without escapes
    int32_t subject_count
    # holes of the user and of the fields of the rule
    int32_t subject_holes[SUBJECT_LIMIT]
    Text subject[SUBJECT_LIMIT]     # texts of subjects without a hole

cdef struct Template:
    Frame frame                 # the learned frame; its texts are in `header`
    void *owner                 # owner of the template
    int32_t field_count
    int32_t hole_count
    Hole holes[HOLE_LIMIT]
    bint is_signed
    Signing signing
    int32_t size
    uint8_t header[1]           # `size` bytes; if signed, `size` more for constants

cdef struct LearnedHeaders:     # templates of one connection
    Template *templates[TEMPLATES_PER_CONNECTION]
    uint32_t learned  # number of learned headers; a new one replaces the oldest
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
