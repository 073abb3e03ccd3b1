"""Reads values of request headers and writes headers of replies."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from rmq._fastpath.bytes.ascii cimport (
    is_literal, literal_size, put_integer, put_literal, put_signed, put_text,
    read_decimal,
)
from rmq._fastpath.bytes.endian cimport put16, put32
from rmq._fastpath.reactor.native cimport Conn, Frame, Text

cdef enum:
    JSON_TYPE = 0               # values of the serialize type
    ONEWAY_FLAG = 2             # bits of the header's flag
    RESPONSE_FLAG = 1
    LANGUAGE_PYTHON = 3


cdef inline bint read_integer(
    const Text *text, int64_t low, int64_t high, int64_t *value
) noexcept nogil:
    """Read a whole decimal number as Java and Python write it; False for other texts.
    """
    return text.data != NULL and not text.escaped and read_decimal(
        text.data, text.size, low, high, value
    )


cdef inline bint is_unset(const Text *text) noexcept nogil:
    """True for a switch that is absent, or off as Java and C++ write it."""
    return (
        text.data == NULL
        or is_literal(text.data, text.size, b"false")
        or is_literal(text.data, text.size, b"0")
    )


cdef inline uint8_t *begin_value(uint8_t *out, const char *name) noexcept nogil:
    """Write the name of a field of a binary header; return the address of its value."""
    put16(out, <uint16_t>literal_size(name))
    return put_literal(out + 2, name) + 4


cdef inline uint8_t *end_value(uint8_t *start, uint8_t *end) noexcept nogil:
    """Write the length of a value in front of it."""
    put32(start - 4, <uint32_t>(end - start))
    return end


cdef inline uint8_t *end_json(
    uint8_t *out, const Frame *frame, const char *remark, int32_t version
) noexcept nogil:
    """Write the part of a JSON reply after its ext fields, or after its code.

    `remark` is a JSON member with its comma, or empty.
    """
    out = put_literal(out, b',"flag":1,"language":"PYTHON","opaque":')
    out = put_signed(out, frame.opaque)
    out = put_text(out, remark, literal_size(remark))
    out = put_literal(out, b',"serializeTypeCurrentRPC":"JSON","version":')
    out = put_integer(out, version)
    return put_literal(out, b"}")


cdef inline uint8_t *begin_binary(
    uint8_t *out, const Frame *frame, int32_t code, const char *remark, int32_t version
) noexcept nogil:
    """Write the part of a binary reply before its ext fields."""
    put16(out, <uint16_t>code)
    out[2] = LANGUAGE_PYTHON
    put16(out + 3, <uint16_t>version)
    put32(out + 5, <uint32_t>frame.opaque)
    put32(out + 9, RESPONSE_FLAG)
    put32(out + 13, <uint32_t>literal_size(remark))
    return put_literal(out + 17, remark) + 4


cdef inline void end_header(
    uint8_t *frame_start, uint8_t *end, uint8_t serialize_type
) noexcept nogil:
    """Write type and size of the header that ends here."""
    put32(frame_start + 4, <uint32_t>(end - frame_start - 8) | serialize_type << 24)


cdef inline uint8_t *end_frame(uint8_t *frame_start, uint8_t *end) noexcept nogil:
    """Write the size of the frame that ends here."""
    put32(frame_start, <uint32_t>(end - frame_start - 4))
    return end


cdef inline void put_success(
    const Frame *frame, Conn *conn, int32_t version
) noexcept nogil:
    """Write a reply with code 0 and no fields."""
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *end
    if frame.serialize_type == JSON_TYPE:
        end = put_literal(start + 8, b'{"code":0')
        end = end_json(end, frame, b"", version)
    else:
        end = begin_binary(start + 8, frame, 0, b"", version)
        end_value(end, end)
    end_header(start, end, frame.serialize_type)
    conn.ready.end = end_frame(start, end)
