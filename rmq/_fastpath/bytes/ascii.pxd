"""Literals and decimal numbers as ASCII bytes: compare, read and write them.

The functions that write return the end of the written bytes; the caller has reserved
the room.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport memcpy

cdef extern from *:
    """
    #include <string.h>
    #include <stdint.h>
    /* The length of a literal: the compiler counts it. */
    #define RMQ_SIZE(literal) ((int64_t)__builtin_strlen(literal))
    #define rmq_is(data, size, literal) \\
        ((size) == RMQ_SIZE(literal) && memcmp(data, literal, RMQ_SIZE(literal)) == 0)
    #define rmq_put(out, literal) \\
        ((uint8_t *)memcpy(out, literal, RMQ_SIZE(literal)) + RMQ_SIZE(literal))
    """
    int64_t literal_size "RMQ_SIZE"(const char *literal) noexcept nogil
    bint is_literal "rmq_is"(
        const uint8_t *data, int64_t size, const char *literal
    ) noexcept nogil
    uint8_t *put_literal "rmq_put"(uint8_t *out, const char *literal) noexcept nogil


cdef inline bint read_decimal(
    const uint8_t *p, int64_t size, int64_t low, int64_t high, int64_t *value
) noexcept nogil:
    """Read a whole number of at most 18 digits, without sign `+` or leading zeros.

    False for other texts, and for a number that is not in [low, high].
    """
    cdef const uint8_t *end = p + size
    cdef int64_t number = 0
    cdef bint is_negative
    if p == end:
        return False
    is_negative = p[0] == 45
    if is_negative:
        p += 1
    if end - p > 18 or p == end or (p[0] == 48 and size > 1):
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
