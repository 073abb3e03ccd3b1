from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.reactor.native cimport Text

cdef enum:
    RAW_FIELD_LIMIT = 48

cdef struct RawHeader:
    int32_t code
    int32_t flag
    int32_t version
    int32_t opaque
    const uint8_t *opaque_text      # position of the number; NULL in binary headers
    int32_t opaque_size
    uint8_t language
    uint8_t serialize_type
    int32_t field_count
    Text names[RAW_FIELD_LIMIT]
    Text values[RAW_FIELD_LIMIT]

cdef bint is_plain(const uint8_t *text, int64_t size) noexcept nogil
cdef const uint8_t *scan_string(
    const uint8_t *p, const uint8_t *end, Text *text
) noexcept nogil
cdef const uint8_t *scan_number(
    const uint8_t *p, const uint8_t *end, Text *text
) noexcept nogil
cdef const uint8_t *scan_integer(
    const uint8_t *p, const uint8_t *end, int32_t *value
) noexcept nogil
cdef int32_t unescape(uint8_t *out, const Text *text) noexcept nogil
cdef bint scan_header(
    const uint8_t *header, int64_t size, uint8_t serialize_type, RawHeader *raw
) noexcept nogil
