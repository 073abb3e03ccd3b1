"""Java's `String.hashCode`, over the UTF-16 code units of a UTF-8 text.

h = s[0]*31^(n-1) + ... + s[n-1] in 32-bit arithmetic.  Tags and index keys use it.
For input that is not UTF-8 the result is undefined; callers check the text before.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    POWER_2 = 31 * 31
    POWER_3 = 31 * 31 * 31
    POWER_4 = 31 * 31 * 31 * 31

cdef uint64_t ABOVE_ASCII = 0x8080808080808080


cdef int32_t java_hash_of(const uint8_t *utf8, size_t size) noexcept nogil:
    return java_hash_on(0, utf8, size)


cdef int32_t java_hash_on(
    int32_t start, const uint8_t *utf8, size_t size
) noexcept nogil:
    """The hash of a text that continues a text with the hash `start`."""
    cdef uint32_t result = start
    cdef uint32_t point
    cdef uint64_t eight
    cdef const uint8_t *p = utf8
    cdef size_t i = 0
    cdef int more
    while i + 8 <= size:    # four bytes at once, independent of each other
        memcpy(&eight, p, 8)
        if eight & ABOVE_ASCII:
            break
        result = result * POWER_4 + (
            p[0] * <uint32_t>POWER_3 + p[1] * <uint32_t>POWER_2
            + p[2] * <uint32_t>31 + p[3]
        )
        result = result * POWER_4 + (
            p[4] * <uint32_t>POWER_3 + p[5] * <uint32_t>POWER_2
            + p[6] * <uint32_t>31 + p[7]
        )
        p += 8
        i += 8
    while i < size:
        point = utf8[i]
        i += 1
        if point < 0x80:
            result = result * 31 + point
            continue
        if point >= 0xF0:
            point &= 0x07
            more = 3
        elif point >= 0xE0:
            point &= 0x0F
            more = 2
        else:
            point &= 0x1F
            more = 1
        while more > 0 and i < size:
            point = (point << 6) | (utf8[i] & 0x3F)
            i += 1
            more -= 1
        if point >= 0x10000:
            point -= 0x10000
            result = result * 31 + (0xD800 | (point >> 10))
            point = 0xDC00 | (point & 0x3FF)
        result = result * 31 + point
    return <int32_t>result


def java_hash(str text not None):
    """Signed 32-bit `String.hashCode` of `text`."""
    cdef bytes utf8 = text.encode("utf-8", "surrogatepass")
    return java_hash_of(utf8, len(utf8))


def tags_code(str tags not None):
    """Return the tags code of a queue entry: the hash of `tags`, 0 without tags."""
    return <int64_t>java_hash(tags) if tags else 0
