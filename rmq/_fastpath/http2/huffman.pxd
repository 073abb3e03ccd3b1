from libc.stdint cimport int64_t, uint8_t

cdef enum:
    SHORTEST_CODE = 5           # bits of the shortest code
    LONGEST_CODE = 30


cdef inline int64_t decoded_room(int64_t size) noexcept nogil:
    """Return the room that `decode_huffman` needs for `size` coded bytes."""
    return size * 8 // SHORTEST_CODE + 2


cdef int64_t decode_huffman(
    const uint8_t *p, int64_t size, uint8_t *out
) noexcept nogil
