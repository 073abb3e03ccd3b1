"""UTF-8: checks whether a text is well-formed.

Inline, because header scanner, timer units and Arrow columns call it per text.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memcpy


cdef inline const uint8_t *skip_character(
    const uint8_t *p, const uint8_t *end
) noexcept nogil:
    """Step over one multi-byte character; NULL if it is not well-formed."""
    cdef uint8_t c = p[0]
    cdef int more, i
    cdef uint8_t low = 0x80, high = 0xBF
    if 0xC2 <= c <= 0xDF:
        more = 1
    elif 0xE0 <= c <= 0xEF:
        more = 2
        if c == 0xE0:
            low = 0xA0
        elif c == 0xED:
            high = 0x9F
    elif 0xF0 <= c <= 0xF4:
        more = 3
        if c == 0xF0:
            low = 0x90
        elif c == 0xF4:
            high = 0x8F
    else:
        return NULL
    if end - p <= more or not low <= p[1] <= high:
        return NULL
    for i in range(2, more + 1):
        if not 0x80 <= p[i] <= 0xBF:
            return NULL
    return p + more + 1


cdef inline bint is_utf8(const uint8_t *text, int64_t size) noexcept nogil:
    """True for well-formed UTF-8: no overlong form, no surrogate, no stray byte."""
    cdef const uint8_t *p = text
    cdef const uint8_t *end = text + size
    cdef uint64_t eight
    while p < end:
        if end - p >= 8:
            memcpy(&eight, p, 8)
            if not eight & <uint64_t>0x8080808080808080ULL:
                p += 8
                continue
        if p[0] < 0x80:
            p += 1
        else:
            p = skip_character(p, end)
            if p == NULL:
                return False
    return True
