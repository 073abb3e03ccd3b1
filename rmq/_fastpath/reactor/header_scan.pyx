"""Header scanner: reads plain headers for compiled handlers, without Python objects.

It may decline, but never differ: for a header that it accepts it returns exactly the
values that `rmq.protocol.frames` reads. The Python path reads all other headers. JSON:
one object with `extFields` as the only nested object, which has strings, booleans and
whole numbers of up to 18 digits. There is no reference, no duplicate key and no escape
from U+0080 on; the text is valid UTF-8. Binary: no empty name or value, no duplicate
name.

Byte layout of the binary header, i32 unless marked:

i16 code · u8 language · i16 version · opaque · flag · n + remark · n + fields

A field is i16 n + name, i32 n + value.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from typing import NamedTuple

from rmq._fastpath.bytes.endian cimport get16, get32
from rmq._fastpath.bytes.utf8 cimport is_utf8, skip_character
from rmq._fastpath.reactor.native cimport Text

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    /* The value of a hex digit; above 15 for other bytes. */
    static inline unsigned rmq_hex(uint8_t c) {
        unsigned digit = c - 48u, letter = (c | 32u) - 97u;
        return digit < 10 ? digit : letter < 6 ? letter + 10 : 255;
    }
    /* True for a reference below U+0080, of six bytes. */
    static inline int rmq_is_ascii_reference(const uint8_t *p, const uint8_t *end) {
        return end - p >= 6 && p[0] == 92 && memcmp(p + 1, "u00", 3) == 0
            && p[4] - 48u < 8 && rmq_hex(p[5]) < 16;
    }
    #ifdef __SSE2__
    #include <emmintrin.h>
    /* The first byte of a string that is a quote, an escape, a control character or
       not ASCII; never reads beyond the end. */
    static inline const uint8_t *rmq_skip_plain(const uint8_t *p, const uint8_t *end) {
        const __m128i quote = _mm_set1_epi8(34), escape = _mm_set1_epi8(92);
        const __m128i space = _mm_set1_epi8(32);
        for (; end - p >= 16; p += 16) {
            __m128i part = _mm_loadu_si128((const __m128i *)p);
            __m128i found = _mm_or_si128(_mm_cmpeq_epi8(part, quote),
                                         _mm_cmpeq_epi8(part, escape));
            /* signed: bytes from 0x80 on are below a space as well */
            found = _mm_or_si128(found, _mm_cmplt_epi8(part, space));
            int mask = _mm_movemask_epi8(found);
            if (mask) return p + __builtin_ctz(mask);
        }
        while (p < end && *p >= 32 && *p < 128 && *p != 34 && *p != 92) p++;
        return p;
    }
    /* Copy up to the next escape and return its address; `out` has room for all. */
    static inline const uint8_t *rmq_copy_plain(
            uint8_t **out, const uint8_t *p, const uint8_t *end) {
        const __m128i escape = _mm_set1_epi8(92);
        uint8_t *to = *out;
        for (; end - p >= 16; p += 16, to += 16) {
            __m128i part = _mm_loadu_si128((const __m128i *)p);
            int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(part, escape));
            _mm_storeu_si128((__m128i *)to, part);
            if (mask) {
                *out = to + __builtin_ctz(mask);
                return p + __builtin_ctz(mask);
            }
        }
        while (p < end && *p != 92) *to++ = *p++;
        *out = to;
        return p;
    }
    #else
    static inline const uint8_t *rmq_skip_plain(const uint8_t *p, const uint8_t *end) {
        while (p < end && *p >= 32 && *p < 128 && *p != 34 && *p != 92) p++;
        return p;
    }
    static inline const uint8_t *rmq_copy_plain(
            uint8_t **out, const uint8_t *p, const uint8_t *end) {
        uint8_t *to = *out;
        while (p < end && *p != 92) *to++ = *p++;
        *out = to;
        return p;
    }
    #endif
    """
    uint32_t rmq_hex(uint8_t c) noexcept nogil
    bint rmq_is_ascii_reference(const uint8_t *p, const uint8_t *end) noexcept nogil
    const uint8_t *rmq_skip_plain(const uint8_t *p, const uint8_t *end) noexcept nogil
    const uint8_t *rmq_copy_plain(
        uint8_t **out, const uint8_t *p, const uint8_t *end
    ) noexcept nogil

cdef enum:
    JSON_TYPE = 0
    BINARY_TYPE = 1
    BINARY_FIXED = 21
    REMARK_SIZE_AT = 13
    LANGUAGE_LIMIT = 14

cdef const char **LANGUAGES = [
    "JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP",
    "GO", "PHP", "OMS", "RUST", "NODE_JS",
]


cdef const uint8_t *_skip_space(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end and (p[0] == 32 or p[0] == 10 or p[0] == 13 or p[0] == 9):
        p += 1
    return p


cdef bint is_plain(const uint8_t *text, int64_t size) noexcept nogil:
    """True for ASCII that needs no escape in JSON."""
    return rmq_skip_plain(text, text + size) == text + size


cdef const uint8_t *scan_string(
    const uint8_t *p, const uint8_t *end, Text *text
) noexcept nogil:
    """Read a string after its quote; return the address after the closing quote, or
    NULL.
    """
    text.data = p
    text.escaped = False
    while p < end:
        p = rmq_skip_plain(p, end)
        if p == end:
            return NULL
        if p[0] == 34:
            text.size = <int32_t>(p - text.data)
            return p + 1
        if p[0] >= 0x80:
            p = skip_character(p, end)
            if p == NULL:
                return NULL
            continue
        if p[0] != 92:
            return NULL         # a control character
        text.escaped = True
        if rmq_is_ascii_reference(p, end):
            p += 6
        elif end - p > 1 and p[1] in (34, 92, 47, 98, 102, 110, 114, 116):
            p += 2
        else:
            return NULL
    return NULL


cdef const uint8_t *scan_integer(
    const uint8_t *p, const uint8_t *end, int32_t *value
) noexcept nogil:
    """Read a whole number of 32 bits; NULL for anything else."""
    cdef int64_t number = 0
    cdef bint negative = False
    cdef const uint8_t *start
    if p < end and p[0] == 45:
        negative = True
        p += 1
    start = p
    while p < end and 48 <= p[0] <= 57 and p - start < 11:
        number = number * 10 + (p[0] - 48)
        p += 1
    if p == start or p - start > 10 or (p - start > 1 and start[0] == 48):
        return NULL
    if negative:
        number = -number
    if number > 2147483647 or number < -2147483648:
        return NULL
    if p < end and (p[0] == 46 or p[0] == 101 or p[0] == 69):
        return NULL
    value[0] = <int32_t>number
    return p


cdef const uint8_t *scan_number(
    const uint8_t *p, const uint8_t *end, Text *text
) noexcept nogil:
    """Read a number or boolean in ext fields as its text; NULL for anything else."""
    text.data = p
    text.escaped = False
    if end - p > 4 and memcmp(p, b"true", 4) == 0:
        p += 4
    elif end - p > 5 and memcmp(p, b"false", 5) == 0:
        p += 5
    else:
        if p < end and p[0] == 45:
            p += 1
        if p >= end or not 48 <= p[0] <= 57 or (p[0] == 48 and p > text.data):
            return NULL
        while p < end and 48 <= p[0] <= 57 and p - text.data < 19:
            p += 1
        if p - text.data > 18 or (text.data[0] == 48 and p - text.data > 1):
            return NULL
    text.size = <int32_t>(p - text.data)
    if p < end and p[0] != 44 and p[0] != 125 and _skip_space(p, end) == p:
        return NULL
    return p


cdef bint _is_name(const Text *text, const char *name, int32_t size) noexcept nogil:
    return not text.escaped and text.size == size and memcmp(text.data, name, size) == 0


cdef bint _has_name(const RawHeader *raw, const Text *name) noexcept nogil:
    cdef int32_t i
    for i in range(raw.field_count):
        if raw.names[i].size == name.size and raw.names[i].data[0] == name.data[0]:
            if memcmp(raw.names[i].data, name.data, name.size) == 0:
                return True
    return False


cdef const uint8_t *_scan_fields(
    const uint8_t *p, const uint8_t *end, RawHeader *raw
) noexcept nogil:
    """Read the object of ext fields after its brace."""
    cdef Text name
    p = _skip_space(p, end)
    if p < end and p[0] == 125:
        return p + 1
    while p < end and p[0] == 34 and raw.field_count < RAW_FIELD_LIMIT:
        p = scan_string(p + 1, end, &name)
        if p == NULL or name.escaped or name.size == 0 or _has_name(raw, &name):
            return NULL
        if name.size == 4 and memcmp(name.data, b"$ref", 4) == 0:
            return NULL
        p = _skip_space(p, end)
        if p >= end or p[0] != 58:
            return NULL
        p = _skip_space(p + 1, end)
        if p >= end:
            return NULL
        raw.names[raw.field_count] = name
        if p[0] == 34:
            p = scan_string(p + 1, end, &raw.values[raw.field_count])
        else:
            p = scan_number(p, end, &raw.values[raw.field_count])
        if p == NULL:
            return NULL
        raw.field_count += 1
        p = _skip_space(p, end)
        if p >= end:
            return NULL
        if p[0] == 125:
            return p + 1
        if p[0] != 44:
            return NULL
        p = _skip_space(p + 1, end)
    return NULL


cdef const uint8_t *_scan_language(
    const uint8_t *p, const uint8_t *end, RawHeader *raw
) noexcept nogil:
    cdef Text text
    cdef int32_t number, i
    if p[0] != 34:
        p = scan_integer(p, end, &number)
        if p == NULL or not 0 <= number < LANGUAGE_LIMIT:
            return NULL
        raw.language = number
        return p
    p = scan_string(p + 1, end, &text)
    if p == NULL or text.escaped:
        return NULL
    for i in range(LANGUAGE_LIMIT):
        number = 0
        while LANGUAGES[i][number]:
            number += 1
        if text.size == number and memcmp(text.data, LANGUAGES[i], number) == 0:
            raw.language = i
            return p
    return NULL


cdef bint _scan_json(
    const uint8_t *p, const uint8_t *end, RawHeader *raw
) noexcept nogil:
    cdef Text key, ignored
    cdef uint32_t seen = 0, bit
    p = _skip_space(p, end)
    if p >= end or p[0] != 123:
        return False
    p = _skip_space(p + 1, end)
    while p < end and p[0] == 34:
        p = scan_string(p + 1, end, &key)
        if p == NULL:
            return False
        p = _skip_space(p, end)
        if p >= end or p[0] != 58:
            return False
        p = _skip_space(p + 1, end)
        if p >= end:
            return False
        if _is_name(&key, "code", 4):
            bit, p = 1, scan_integer(p, end, &raw.code)
        elif _is_name(&key, "flag", 4):
            bit, p = 2, scan_integer(p, end, &raw.flag)
        elif _is_name(&key, "opaque", 6):
            bit, raw.opaque_text = 4, p
            p = scan_integer(p, end, &raw.opaque)
            raw.opaque_size = <int32_t>(p - raw.opaque_text)
        elif _is_name(&key, "version", 7):
            bit, p = 8, scan_integer(p, end, &raw.version)
        elif _is_name(&key, "language", 8):
            bit, p = 16, _scan_language(p, end, raw)
        elif _is_name(&key, "extFields", 9) and p[0] == 123:
            bit, p = 32, _scan_fields(p + 1, end, raw)
        elif _is_name(&key, "serializeTypeCurrentRPC", 23) and p[0] == 34:
            bit, p = 64, scan_string(p + 1, end, &ignored)
        elif _is_name(&key, "remark", 6) and p[0] == 34:
            bit, p = 128, scan_string(p + 1, end, &ignored)
        else:
            return False
        if p == NULL or seen & bit:
            return False
        seen |= bit
        p = _skip_space(p, end)
        if p >= end:
            return False
        if p[0] == 125:
            return _skip_space(p + 1, end) == end and seen & 5 == 5
        if p[0] != 44:
            return False
        p = _skip_space(p + 1, end)
    return False


cdef bint _scan_binary(
    const uint8_t *p, const uint8_t *end, RawHeader *raw
) noexcept nogil:
    cdef int64_t size
    cdef Text *text
    if end - p < BINARY_FIXED:
        return False
    raw.code = <int32_t><short>get16(p)
    raw.language = p[2]
    raw.version = <int32_t><short>get16(p + 3)
    raw.opaque = <int32_t>get32(p + 5)
    raw.flag = <int32_t>get32(p + 9)
    size = <int32_t>get32(p + REMARK_SIZE_AT)
    if not 0 <= size <= end - p - BINARY_FIXED or raw.language >= LANGUAGE_LIMIT:
        return False
    p += REMARK_SIZE_AT + 4
    if not is_utf8(p, size):
        return False
    p += size
    size = <int32_t>get32(p)
    p += 4
    if size != end - p:
        return False
    while p < end:
        if raw.field_count == RAW_FIELD_LIMIT or end - p < 2:
            return False
        text = &raw.names[raw.field_count]
        size = <short>get16(p)
        if size <= 0 or size > end - p - 6:
            return False
        text.data, text.size, text.escaped = p + 2, <int32_t>size, False
        if _has_name(raw, text) or not is_utf8(text.data, text.size):
            return False
        p += 2 + size
        size = <int32_t>get32(p)
        if size <= 0 or size > end - p - 4:
            return False
        text = &raw.values[raw.field_count]
        text.data, text.size, text.escaped = p + 4, <int32_t>size, False
        if not is_utf8(text.data, text.size):
            return False
        p += 4 + size
        raw.field_count += 1
    return True


cdef bint scan_header(
    const uint8_t *header, int64_t size, uint8_t serialize_type, RawHeader *raw
) noexcept nogil:
    """Read a plain header; False if it is not plain."""
    raw.code = raw.flag = raw.version = raw.opaque = raw.field_count = 0
    raw.language = 0
    raw.opaque_text = NULL
    raw.serialize_type = serialize_type
    if serialize_type == JSON_TYPE:
        return _scan_json(header, header + size, raw)
    if serialize_type == BINARY_TYPE:
        return _scan_binary(header, header + size, raw)
    return False


cdef int32_t unescape(uint8_t *out, const Text *text) noexcept nogil:
    """Write a scanned value without escapes; return its size.

    It is at most the size of the text.
    """
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef uint8_t *start = out
    cdef uint8_t c
    if not text.escaped:
        memcpy(out, p, text.size)
        return text.size
    while True:
        p = rmq_copy_plain(&out, p, end)
        if p == end:
            return <int32_t>(out - start)
        c = p[1]
        p += 2
        if c == 117:
            out[0] = <uint8_t>(rmq_hex(p[2]) << 4 | rmq_hex(p[3]))
            p += 4
        elif c == 98:
            out[0] = 8
        elif c == 102:
            out[0] = 12
        elif c == 110:
            out[0] = 10
        elif c == 114:
            out[0] = 13
        elif c == 116:
            out[0] = 9
        else:
            out[0] = c
        out += 1


class ScannedHeader(NamedTuple):
    """A scanned header as Python values; JSON escapes are still in the field values."""

    code: int
    flag: int
    version: int
    opaque: int
    language: int
    fields: dict[bytes, bytes]


def scan(bytes header not None, uint8_t serialize_type):
    """Scan one header; None if it is not plain. For tests and benchmarks."""
    cdef RawHeader raw
    cdef int32_t i
    if not scan_header(header, len(header), serialize_type, &raw):
        return None
    fields = {}
    for i in range(raw.field_count):
        name = raw.names[i].data[:raw.names[i].size]
        fields[name] = raw.values[i].data[:raw.values[i].size]
    return ScannedHeader(
        raw.code, raw.flag, raw.version, raw.opaque, raw.language, fields
    )
