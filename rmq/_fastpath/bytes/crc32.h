/* CRC-32 (zlib's polynomial, reflected 0xEDB88320).

   Two methods: carry-less multiplication where the CPU has it (Gopal et al., "Fast CRC
   Computation for Generic Polynomials Using PCLMULQDQ Instruction", Intel 2009), else 16
   tables (Kounavis and Berry, "slicing-by"). The choice is made once, at import. */
#ifndef RMQ_CRC32_H
#define RMQ_CRC32_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

static uint32_t rmq_crc_table[16][256];
static int rmq_crc_has_clmul, rmq_crc_has_wide;

static void rmq_crc_init(void) {
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc & 1) ? (crc >> 1) ^ 0xEDB88320u : crc >> 1;
        rmq_crc_table[0][byte] = crc;
    }
    for (int level = 1; level < 16; level++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t below = rmq_crc_table[level - 1][byte];
            rmq_crc_table[level][byte] = (below >> 8) ^ rmq_crc_table[0][below & 0xFF];
        }
#if defined(__x86_64__)
    rmq_crc_has_clmul =
        __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    rmq_crc_has_wide = rmq_crc_has_clmul && __builtin_cpu_supports("avx512f") &&
                       __builtin_cpu_supports("vpclmulqdq");
#endif
}

/* Works on the inverted register; callers invert before and after. */
static uint32_t rmq_crc_tables(uint32_t crc, const uint8_t *data, size_t size) {
    while (size >= 16) {
        uint32_t word[4];
        memcpy(word, data, 16);
        word[0] ^= crc;
        crc = 0;
        for (int lane = 0; lane < 4; lane++)
            for (int byte = 0; byte < 4; byte++)
                crc ^= rmq_crc_table[15 - 4 * lane - byte]
                                    [(word[lane] >> (8 * byte)) & 0xFF];
        data += 16;
        size -= 16;
    }
    while (size--)
        crc = (crc >> 8) ^ rmq_crc_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
/* lane = lane * x^distance xor next, both halves of the 128-bit lane */
__attribute__((target("pclmul,sse4.1"))) static inline __m128i
rmq_crc_fold(__m128i lane, __m128i next, __m128i constants) {
    __m128i low = _mm_clmulepi64_si128(lane, constants, 0x00);
    __m128i high = _mm_clmulepi64_si128(lane, constants, 0x11);
    return _mm_xor_si128(_mm_xor_si128(low, high), next);
}

/* The CRC of what four lanes stand for, and of the rest of the data. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t
rmq_crc_finish(__m128i *lane, const uint8_t *data, size_t size) {
    const __m128i by_512 = _mm_set_epi64x(0x1C6E41596, 0x154442BD4);
    const __m128i by_128 = _mm_set_epi64x(0x0CCAA009E, 0x1751997D0);
    const __m128i by_64 = _mm_set_epi64x(0, 0x163CD6124);
    const __m128i barrett = _mm_set_epi64x(0x1F7011641, 0x1DB710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
    while (size >= 64) {
        for (int i = 0; i < 4; i++)
            lane[i] = rmq_crc_fold(
                lane[i], _mm_loadu_si128((const __m128i *)data + i), by_512);
        data += 64;
        size -= 64;
    }
    __m128i sum = lane[0];
    for (int i = 1; i < 4; i++)
        sum = rmq_crc_fold(sum, lane[i], by_128);
    while (size >= 16) {
        sum = rmq_crc_fold(sum, _mm_loadu_si128((const __m128i *)data), by_128);
        data += 16;
        size -= 16;
    }
    /* 128 bits to 64, to 32 by Barrett reduction */
    __m128i part = _mm_clmulepi64_si128(sum, by_128, 0x10);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 8), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), by_64, 0x00);
    sum = _mm_xor_si128(_mm_srli_si128(sum, 4), part);
    part = _mm_clmulepi64_si128(_mm_and_si128(sum, low_words), barrett, 0x10);
    part = _mm_clmulepi64_si128(_mm_and_si128(part, low_words), barrett, 0x00);
    uint32_t crc = (uint32_t)_mm_extract_epi32(_mm_xor_si128(sum, part), 1);
    return rmq_crc_tables(crc, data, size);
}

__attribute__((target("pclmul,sse4.1"))) static uint32_t
rmq_crc_clmul(uint32_t crc, const uint8_t *data, size_t size) {
    __m128i lane[4];
    for (int i = 0; i < 4; i++)
        lane[i] = _mm_loadu_si128((const __m128i *)data + i);
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)crc));
    return rmq_crc_finish(lane, data + 64, size - 64);
}

__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1"))) static inline __m512i
rmq_crc_fold_wide(__m512i lane, __m512i next, __m512i constants) {
    __m512i low = _mm512_clmulepi64_epi128(lane, constants, 0x00);
    __m512i high = _mm512_clmulepi64_epi128(lane, constants, 0x11);
    return _mm512_ternarylogic_epi64(low, high, next, 0x96);
}

/* The same with four times as many bytes an instruction. */
__attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.1"))) static uint32_t
rmq_crc_wide(uint32_t crc, const uint8_t *data, size_t size) {
    const __m512i by_2048 =
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x1322D1430, 0x11542778A));
    const __m512i by_512 =
        _mm512_broadcast_i32x4(_mm_set_epi64x(0x1C6E41596, 0x154442BD4));
    __m512i wide[4];
    __m128i lane[4];
    for (int i = 0; i < 4; i++)
        wide[i] = _mm512_loadu_si512((const __m512i *)data + i);
    wide[0] = _mm512_xor_si512(
        wide[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)crc)));
    data += 256;
    size -= 256;
    while (size >= 256) {
        for (int i = 0; i < 4; i++)
            wide[i] = rmq_crc_fold_wide(
                wide[i], _mm512_loadu_si512((const __m512i *)data + i), by_2048);
        data += 256;
        size -= 256;
    }
    for (int i = 1; i < 4; i++)
        wide[i] = rmq_crc_fold_wide(wide[i - 1], wide[i], by_512);
    _mm512_storeu_si512(lane, wide[3]);
    return rmq_crc_finish(lane, data, size);
}
#endif

static uint32_t rmq_crc32(const uint8_t *data, size_t size, int allow_clmul) {
#if defined(__x86_64__)
    if (allow_clmul && rmq_crc_has_wide && size >= 1024)
        return ~rmq_crc_wide(~0u, data, size);
    if (allow_clmul && rmq_crc_has_clmul && size >= 64)
        return ~rmq_crc_clmul(~0u, data, size);
#else
    (void)allow_clmul;
#endif
    return ~rmq_crc_tables(~0u, data, size);
}
#endif
