/* HMAC-SHA1 (RFC 2104, FIPS 180-4) of content that comes in pieces.

   The key is compressed once, into two states of 20 bytes; each signature starts from
   copies of them. Where the CPU has instructions for SHA-1 a block of 64 bytes takes a
   quarter of the time. The choice is made once, at import. */
#ifndef RMQ_HMAC_SHA1_H
#define RMQ_HMAC_SHA1_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

#define RMQ_SHA1_BLOCK 64
#define RMQ_SHA1_SIZE 20

typedef struct {
    uint32_t inner[5]; /* after the block of the key xor 0x36 */
    uint32_t outer[5]; /* after the block of the key xor 0x5c */
} rmq_hmac_key;

typedef struct {
    uint32_t state[5];
    uint64_t size;     /* bytes so far, the block of the key included */
    uint8_t rest[RMQ_SHA1_BLOCK];
} rmq_sha1;

static int rmq_sha1_has_instructions;

static void rmq_sha1_init(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    rmq_sha1_has_instructions = __builtin_cpu_supports("ssse3")
        && __builtin_cpu_supports("sse4.1")
        && __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b >> 29 & 1);
#endif
}

static inline uint32_t rmq_sha1_roll(uint32_t value, int bits) {
    return value << bits | value >> (32 - bits);
}

static void rmq_sha1_plain(uint32_t *state, const uint8_t *data, size_t blocks) {
    uint32_t word[80];
    for (; blocks; blocks--, data += RMQ_SHA1_BLOCK) {
        for (int i = 0; i < 16; i++)
            word[i] = (uint32_t)data[4 * i] << 24 | (uint32_t)data[4 * i + 1] << 16
                | (uint32_t)data[4 * i + 2] << 8 | data[4 * i + 3];
        for (int i = 16; i < 80; i++)
            word[i] = rmq_sha1_roll(
                word[i - 3] ^ word[i - 8] ^ word[i - 14] ^ word[i - 16], 1);
        uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        for (int i = 0; i < 80; i++) {
            uint32_t mixed, constant;
            if (i < 20) mixed = (b & c) | (~b & d), constant = 0x5A827999u;
            else if (i < 40) mixed = b ^ c ^ d, constant = 0x6ED9EBA1u;
            else if (i < 60) mixed = (b & c) | (b & d) | (c & d), constant = 0x8F1BBCDCu;
            else mixed = b ^ c ^ d, constant = 0xCA62C1D6u;
            uint32_t next = rmq_sha1_roll(a, 5) + mixed + e + constant + word[i];
            e = d, d = c, c = rmq_sha1_roll(b, 30), b = a, a = next;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
    }
}

#if defined(__x86_64__)
/* Four rounds: `kind` must be a constant. `word` holds the last 16 words of the schedule,
   four in each lane; the words after the first 16 are made from the four before. */
#define RMQ_SHA1_ROUNDS(group, kind)                                                    \
    do {                                                                                \
        __m128i made = word[(group) & 3];                                               \
        if ((group) >= 4) {                                                             \
            made = _mm_sha1msg1_epu32(made, word[((group) + 1) & 3]);                   \
            made = _mm_xor_si128(made, word[((group) + 2) & 3]);                        \
            made = _mm_sha1msg2_epu32(made, word[((group) + 3) & 3]);                   \
            word[(group) & 3] = made;                                                   \
        }                                                                               \
        made = (group) ? _mm_sha1nexte_epu32(before, made) : _mm_add_epi32(last, made); \
        before = abcd;                                                                  \
        abcd = _mm_sha1rnds4_epu32(abcd, made, kind);                                   \
    } while (0)

__attribute__((target("sha,ssse3,sse4.1"))) static void
rmq_sha1_fast(uint32_t *state, const uint8_t *data, size_t blocks) {
    const __m128i order = _mm_set_epi64x(0x0001020304050607, 0x08090a0b0c0d0e0f);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B);
    __m128i last = _mm_set_epi32((int)state[4], 0, 0, 0);
    for (; blocks; blocks--, data += RMQ_SHA1_BLOCK) {
        const __m128i abcd_then = abcd;
        __m128i word[4], before = abcd;
        for (int i = 0; i < 4; i++)
            word[i] = _mm_shuffle_epi8(
                _mm_loadu_si128((const __m128i *)(data + 16 * i)), order);
        RMQ_SHA1_ROUNDS(0, 0);
        RMQ_SHA1_ROUNDS(1, 0);
        RMQ_SHA1_ROUNDS(2, 0);
        RMQ_SHA1_ROUNDS(3, 0);
        RMQ_SHA1_ROUNDS(4, 0);
        RMQ_SHA1_ROUNDS(5, 1);
        RMQ_SHA1_ROUNDS(6, 1);
        RMQ_SHA1_ROUNDS(7, 1);
        RMQ_SHA1_ROUNDS(8, 1);
        RMQ_SHA1_ROUNDS(9, 1);
        RMQ_SHA1_ROUNDS(10, 2);
        RMQ_SHA1_ROUNDS(11, 2);
        RMQ_SHA1_ROUNDS(12, 2);
        RMQ_SHA1_ROUNDS(13, 2);
        RMQ_SHA1_ROUNDS(14, 2);
        RMQ_SHA1_ROUNDS(15, 3);
        RMQ_SHA1_ROUNDS(16, 3);
        RMQ_SHA1_ROUNDS(17, 3);
        RMQ_SHA1_ROUNDS(18, 3);
        RMQ_SHA1_ROUNDS(19, 3);
        last = _mm_sha1nexte_epu32(before, last);
        abcd = _mm_add_epi32(abcd, abcd_then);
    }
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(last, 3);
}
#endif

static void rmq_sha1_blocks(uint32_t *state, const uint8_t *data, size_t blocks) {
#if defined(__x86_64__)
    if (rmq_sha1_has_instructions) {
        rmq_sha1_fast(state, data, blocks);
        return;
    }
#endif
    rmq_sha1_plain(state, data, blocks);
}

static void rmq_sha1_start(rmq_sha1 *sha) {
    static const uint32_t first[5] = {
        0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
    memcpy(sha->state, first, sizeof first);
    sha->size = 0;
}

static void rmq_sha1_add(rmq_sha1 *sha, const uint8_t *data, size_t size) {
    size_t held = sha->size % RMQ_SHA1_BLOCK;
    sha->size += size;
    if (held + size < RMQ_SHA1_BLOCK) {
        memcpy(sha->rest + held, data, size);
        return;
    }
    if (held) {
        size_t missing = RMQ_SHA1_BLOCK - held;
        memcpy(sha->rest + held, data, missing);
        rmq_sha1_blocks(sha->state, sha->rest, 1);
        data += missing, size -= missing;
    }
    rmq_sha1_blocks(sha->state, data, size / RMQ_SHA1_BLOCK);
    memcpy(sha->rest, data + size / RMQ_SHA1_BLOCK * RMQ_SHA1_BLOCK, size % RMQ_SHA1_BLOCK);
}

static void rmq_sha1_end(rmq_sha1 *sha, uint8_t *digest) {
    size_t held = sha->size % RMQ_SHA1_BLOCK;
    uint64_t bits = sha->size * 8;
    sha->rest[held++] = 0x80;
    if (held > RMQ_SHA1_BLOCK - 8) {
        memset(sha->rest + held, 0, RMQ_SHA1_BLOCK - held);
        rmq_sha1_blocks(sha->state, sha->rest, 1);
        held = 0;
    }
    memset(sha->rest + held, 0, RMQ_SHA1_BLOCK - 8 - held);
    for (int i = 0; i < 8; i++) sha->rest[56 + i] = (uint8_t)(bits >> (56 - 8 * i));
    rmq_sha1_blocks(sha->state, sha->rest, 1);
    for (int i = 0; i < RMQ_SHA1_SIZE; i++)
        digest[i] = (uint8_t)(sha->state[i / 4] >> (24 - 8 * (i % 4)));
}

/* Prepare a key; a long one is replaced by its digest. */
static void rmq_hmac_prepare(rmq_hmac_key *key, const uint8_t *secret, size_t size) {
    uint8_t block[RMQ_SHA1_BLOCK] = {0};
    rmq_sha1 sha;
    if (size > RMQ_SHA1_BLOCK) {
        rmq_sha1_start(&sha);
        rmq_sha1_add(&sha, secret, size);
        rmq_sha1_end(&sha, block);
    } else
        memcpy(block, secret, size);
    for (int i = 0; i < RMQ_SHA1_BLOCK; i++) block[i] ^= 0x36;
    rmq_sha1_start(&sha);
    rmq_sha1_blocks(sha.state, block, 1);
    memcpy(key->inner, sha.state, sizeof key->inner);
    for (int i = 0; i < RMQ_SHA1_BLOCK; i++) block[i] ^= 0x36 ^ 0x5c;
    rmq_sha1_start(&sha);
    rmq_sha1_blocks(sha.state, block, 1);
    memcpy(key->outer, sha.state, sizeof key->outer);
}

static void rmq_hmac_start(rmq_sha1 *sha, const rmq_hmac_key *key) {
    memcpy(sha->state, key->inner, sizeof key->inner);
    sha->size = RMQ_SHA1_BLOCK;
}

static void rmq_hmac_end(rmq_sha1 *sha, const rmq_hmac_key *key, uint8_t *digest) {
    rmq_sha1_end(sha, digest);
    memcpy(sha->state, key->outer, sizeof key->outer);
    sha->size = RMQ_SHA1_BLOCK;
    rmq_sha1_add(sha, digest, RMQ_SHA1_SIZE);
    rmq_sha1_end(sha, digest);
}
#endif
