"""Protobuf's wire format: the fields of a message, read and written.

    key     varint: number << 3 | kind
    value   NUMBER: varint; FIXED64: 8 bytes; BYTES: size (varint), bytes;
            FIXED32: 4 bytes

A varint has 7 bits in each byte, the lowest first; all bytes but the last have the
highest bit set. Groups are not read. Writers return the end of the written bytes: the
caller has reserved the room, 10 bytes for each number.
"""

from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum FieldKind:
    NUMBER = 0
    FIXED64 = 1
    BYTES = 2
    FIXED32 = 5

cdef struct Span:
    const uint8_t *data         # NULL: the field is absent
    int64_t size

cdef struct Field:
    uint32_t number
    uint32_t kind
    uint64_t value              # value of a NUMBER
    Span bytes                  # content of BYTES


cdef inline const uint8_t *read_varint(
    const uint8_t *p, const uint8_t *end, uint64_t *value
) noexcept nogil:
    """Read a number; return its end, NULL if it is not whole."""
    cdef int shift = 0
    cdef uint8_t byte
    value[0] = 0
    while p < end and shift < 64:
        byte = p[0]
        value[0] |= <uint64_t>(byte & 127) << shift
        p += 1
        if byte < 128:
            return p
        shift += 7
    return NULL


cdef inline const uint8_t *read_field(
    const uint8_t *p, const uint8_t *end, Field *field
) noexcept nogil:
    """Read a field; return its end, NULL if it is not whole or belongs to a group."""
    cdef uint64_t key
    p = read_varint(p, end, &key)
    if p == NULL or key >> 32:
        return NULL
    field.number = <uint32_t>key >> 3
    field.kind = <uint32_t>key & 7
    if field.number == 0:
        return NULL
    if field.kind == NUMBER:
        return read_varint(p, end, &field.value)
    if field.kind == BYTES:
        p = read_varint(p, end, &field.value)
        if p == NULL or field.value > <uint64_t>(end - p):
            return NULL
        field.bytes.data = p
        field.bytes.size = <int64_t>field.value
        return p + field.bytes.size
    if field.kind == FIXED64 and end - p >= 8:
        return p + 8
    if field.kind == FIXED32 and end - p >= 4:
        return p + 4
    return NULL


cdef inline uint8_t *put_varint(uint8_t *out, uint64_t value) noexcept nogil:
    while value >= 128:
        out[0] = <uint8_t>(value | 128)
        out += 1
        value >>= 7
    out[0] = <uint8_t>value
    return out + 1


cdef inline int64_t varint_size(uint64_t value) noexcept nogil:
    cdef int64_t size = 1
    while value >= 128:
        value >>= 7
        size += 1
    return size


cdef inline uint8_t *put_number(
    uint8_t *out, uint32_t number, uint64_t value
) noexcept nogil:
    """Write a field with a number, unless it is 0."""
    if value == 0:
        return out
    return put_varint(put_varint(out, number << 3), value)


cdef inline uint8_t *begin_bytes(
    uint8_t *out, uint32_t number, int64_t size
) noexcept nogil:
    """Write key and size of a field with `size` bytes, which the caller adds."""
    return put_varint(put_varint(out, number << 3 | BYTES), <uint64_t>size)


cdef inline uint8_t *put_bytes(
    uint8_t *out, uint32_t number, const uint8_t *data, int64_t size
) noexcept nogil:
    """Write a field with bytes, unless there are none."""
    if size == 0:
        return out
    out = begin_bytes(out, number, size)
    memcpy(out, data, size)
    return out + size
