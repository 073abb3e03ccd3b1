"""Items of a client batch: the messages in the body of one request 320.

One after another, big-endian:

    i32 size of the item · i32 magic · i32 CRC · i32 flag
    i32 n · n bytes body · i16 m · m bytes properties

Magic and CRC are not read.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.endian cimport get16, get32

cdef enum:
    ITEM_LIMIT = 200_000  # maximum items of a batch: the answer names each message
    ITEM_FLAG_AT = 12
    ITEM_HEAD_SIZE = 20
    ITEM_SIZE_LEAST = 22

cdef struct BatchItem:
    int32_t flag
    const uint8_t *body
    int32_t body_size
    const uint8_t *properties
    int32_t properties_size


cdef inline const uint8_t *read_item(
    const uint8_t *p, const uint8_t *end, BatchItem *item
) noexcept nogil:
    """Read the item at `p` and return the address after it; NULL if a length is wrong.
    """
    cdef int64_t left = end - p
    if left < ITEM_SIZE_LEAST:
        return NULL
    item.flag = <int32_t>get32(p + ITEM_FLAG_AT)
    item.body_size = <int32_t>get32(p + ITEM_HEAD_SIZE - 4)
    if not 0 <= item.body_size <= left - ITEM_SIZE_LEAST:
        return NULL
    item.body = p + ITEM_HEAD_SIZE
    item.properties = item.body + item.body_size + 2
    item.properties_size = <int16_t>get16(item.properties - 2)
    if not 0 <= item.properties_size <= end - item.properties:
        return NULL
    if <int32_t>get32(p) != item.properties + item.properties_size - p:
        return NULL
    return item.properties + item.properties_size
