from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.reactor.header_scan cimport RAW_FIELD_LIMIT, RawHeader
from rmq._fastpath.reactor.native cimport Text
from rmq._fastpath.reactor.template cimport Signing, Template

cdef enum:
    FIELDS_LIMIT = 8192  # maximum bytes of all values; Python serves larger requests

cdef struct FieldOrder:         # order of the signed fields, by name
    int32_t count
    uint8_t places[RAW_FIELD_LIMIT]     # places among the fields of the header

cdef void prepare_secret(
    uint32_t *prepared, const uint8_t *secret, size_t size
) noexcept nogil
cdef const Text *signature_of(const RawHeader *raw) noexcept nogil
cdef int32_t write_content(
    FieldOrder *order, const RawHeader *raw, uint8_t *content
) noexcept nogil
cdef int32_t write_templated_content(
    const Signing *signing, const Text *values, uint8_t *content
) noexcept nogil
cdef bint is_digest(
    const uint8_t *digest, const uint32_t *secret, const uint8_t *content, int64_t size
) noexcept nogil
cdef bint template_content(
    Template *template, const FieldOrder *order, const RawHeader *raw,
    const uint8_t *header,
) noexcept nogil
cdef bint is_signature(
    const Text *signature,
    const uint32_t *secret,
    const uint8_t *content,
    int32_t size,
    const uint8_t *body,
    int64_t body_size,
) noexcept nogil
