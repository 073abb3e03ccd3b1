"""Inline big-endian loads and stores; addresses need no alignment."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    static inline void rmq_put16(uint8_t *p, uint16_t v) {
        v = __builtin_bswap16(v); memcpy(p, &v, 2);
    }
    static inline void rmq_put32(uint8_t *p, uint32_t v) {
        v = __builtin_bswap32(v); memcpy(p, &v, 4);
    }
    static inline void rmq_put64(uint8_t *p, uint64_t v) {
        v = __builtin_bswap64(v); memcpy(p, &v, 8);
    }
    static inline uint16_t rmq_get16(const uint8_t *p) {
        uint16_t v; memcpy(&v, p, 2); return __builtin_bswap16(v);
    }
    static inline uint32_t rmq_get32(const uint8_t *p) {
        uint32_t v; memcpy(&v, p, 4); return __builtin_bswap32(v);
    }
    static inline uint64_t rmq_get64(const uint8_t *p) {
        uint64_t v; memcpy(&v, p, 8); return __builtin_bswap64(v);
    }
    """
    void put16 "rmq_put16"(uint8_t *p, uint16_t value) noexcept nogil
    void put32 "rmq_put32"(uint8_t *p, uint32_t value) noexcept nogil
    void put64 "rmq_put64"(uint8_t *p, uint64_t value) noexcept nogil
    uint16_t get16 "rmq_get16"(const uint8_t *p) noexcept nogil
    uint32_t get32 "rmq_get32"(const uint8_t *p) noexcept nogil
    uint64_t get64 "rmq_get64"(const uint8_t *p) noexcept nogil
