"""Values of headers: numbers out of requests, texts and numbers into replies."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from rmq._fastpath.endian cimport put16, put32
from rmq._fastpath.native cimport Text


cdef inline bint read_integer(
    const Text *text, int64_t low, int64_t high, int64_t *value
) noexcept nogil:
    """Read a whole decimal number as Java and Python write it; False for others."""
    cdef const uint8_t *p = text.data
    cdef const uint8_t *end = p + text.size
    cdef int64_t number = 0
    cdef bint is_negative
    if p == NULL or text.escaped or p == end:
        return False
    is_negative = p[0] == 45
    if is_negative:
        p += 1
    if end - p > 18 or p == end or (p[0] == 48 and text.size > 1):
        return False
    while p < end:
        if not 48 <= p[0] <= 57:
            return False
        number = number * 10 + (p[0] - 48)
        p += 1
    if is_negative:
        number = -number
    value[0] = number
    return low <= number <= high


cdef inline bint is_text(
    const Text *text, const char *word, int32_t size
) noexcept nogil:
    return (
        not text.escaped and text.size == size and memcmp(text.data, word, size) == 0
    )


cdef inline bint is_unset(const Text *text) noexcept nogil:
    """True for a switch that is left out, or off as Java and C++ write it."""
    return (
        text.data == NULL or is_text(text, b"false", 5) or is_text(text, b"0", 1)
    )


cdef inline uint8_t *put_text(
    uint8_t *out, const char *text, int64_t size
) noexcept nogil:
    memcpy(out, text, size)
    return out + size


cdef inline uint8_t *put_integer(uint8_t *out, int64_t number) noexcept nogil:
    """Write a number that is not negative in decimal."""
    cdef uint8_t digits[20]
    cdef int count = 0
    while number >= 10:
        digits[count] = <uint8_t>(48 + number % 10)
        number //= 10
        count += 1
    digits[count] = <uint8_t>(48 + number)
    while count >= 0:
        out[0] = digits[count]
        out += 1
        count -= 1
    return out


cdef inline uint8_t *put_signed(uint8_t *out, int64_t number) noexcept nogil:
    if number < 0:
        out[0] = 45
        return put_integer(out + 1, -number)
    return put_integer(out, number)


cdef inline uint8_t *put_name(
    uint8_t *out, const char *name, int32_t size
) noexcept nogil:
    """Write the name of a field of a binary header, and leave room for the length."""
    put16(out, size)
    memcpy(out + 2, name, size)
    return out + 2 + size + 4


cdef inline uint8_t *end_value(uint8_t *start, uint8_t *end) noexcept nogil:
    """Write the length of a value before it."""
    put32(start - 4, <uint32_t>(end - start))
    return end
