"""Finds a byte that is near: inline, because scans of properties call it per name."""

from libc.stdint cimport uint8_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif
    /* As memchr, but returns `end` without a hit. */
    static inline const uint8_t *rmq_find_byte(
            const uint8_t *p, const uint8_t *end, uint8_t byte) {
    #ifdef __SSE2__
        const __m128i wanted = _mm_set1_epi8((char)byte);
        for (; end - p >= 16; p += 16) {
            __m128i part = _mm_loadu_si128((const __m128i *)p);
            int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(part, wanted));
            if (mask) return p + __builtin_ctz(mask);
        }
    #endif
        while (p < end && *p != byte) p++;
        return p;
    }
    """
    const uint8_t *find_byte "rmq_find_byte"(
        const uint8_t *p, const uint8_t *end, uint8_t byte
    ) noexcept nogil
