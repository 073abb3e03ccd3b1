from libc.stdint cimport uint8_t, uint32_t

cdef uint32_t crc_of(const uint8_t *data, size_t size) noexcept nogil
cdef uint32_t body_crc_of(const uint8_t *data, size_t size) noexcept nogil
