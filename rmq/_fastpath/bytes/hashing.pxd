from libc.stdint cimport int32_t, uint8_t

cdef int32_t java_hash_of(const uint8_t *utf8, size_t size) noexcept nogil
cdef int32_t java_hash_on(
    int32_t start, const uint8_t *utf8, size_t size
) noexcept nogil
