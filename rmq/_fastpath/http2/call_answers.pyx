"""Answers to calls, as protobuf writes them.

    SendMessageResponse     1 Status, 2 an entry for each message
    entry                   1 Status, 2 message_id, 3 transaction_id, 4 offset,
                            5 recall_handle
    AckMessageResponse      1 Status, 2 an entry for each message
    its entry               1 message_id, 2 receipt_handle, 3 the status
    HeartbeatResponse       1 Status, alone
    Status                  1 code, 2 message

The caller has reserved the room: 64 bytes for each Status, and the texts.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.string cimport strlen

from rmq._fastpath.http2.proto_wire cimport (
    Span, begin_bytes, put_bytes, put_number, varint_size,
)


cdef const char *text_of(Code code) noexcept nogil:
    """Return the message of a Status."""
    if code == OK:
        return b"OK"
    if code == MESSAGE_NOT_FOUND:
        return b"no new message"
    if code == SLAVE_PERSISTENCE_TIMEOUT:
        return b"SLAVE_PERSISTENCE_TIMEOUT"
    return b"MASTER_PERSISTENCE_TIMEOUT"


cdef inline int64_t field_size(int64_t size) noexcept nogil:
    """Return the size of a field with `size` bytes; an empty field is not written."""
    return 0 if size == 0 else 1 + varint_size(size) + size


cdef inline int64_t status_size(Code code) noexcept nogil:
    return 1 + varint_size(code) + field_size(strlen(text_of(code)))


cdef uint8_t *put_status(uint8_t *out, Code code, int number=1) noexcept nogil:
    """Write a Status as a field."""
    cdef const char *text = text_of(code)
    out = put_number(begin_bytes(out, number, status_size(code)), 1, code)
    return put_bytes(out, 2, <const uint8_t *>text, strlen(text))


cdef uint8_t *put_send_response(
    uint8_t *out, Code code, const Span *message_id, int64_t offset,
    const Span *recall_handle,
) noexcept nogil:
    """Write a SendMessageResponse with one entry of the same status."""
    cdef int64_t size = field_size(status_size(code)) + field_size(message_id.size)
    if code == OK:
        size += field_size(message_id.size) + field_size(recall_handle.size)
    if offset:
        size += 1 + varint_size(offset)
    out = begin_bytes(put_status(out, code), 2, size)
    out = put_bytes(put_status(out, code), 2, message_id.data, message_id.size)
    if code == OK:
        out = put_bytes(out, 3, message_id.data, message_id.size)
    out = put_number(out, 4, offset)
    if code == OK:
        out = put_bytes(out, 5, recall_handle.data, recall_handle.size)
    return out


cdef uint8_t *put_ack_response(
    uint8_t *out, const AckedEntry *entries, int count
) noexcept nogil:
    """Write an AckMessageResponse for messages that are acked."""
    cdef const AckedEntry *entry
    cdef int i
    out = put_status(out, OK)
    for i in range(count):
        entry = &entries[i]
        out = begin_bytes(
            out, 2,
            field_size(entry.message_id.size) + field_size(entry.handle.size)
            + field_size(status_size(OK)),
        )
        out = put_bytes(out, 1, entry.message_id.data, entry.message_id.size)
        out = put_bytes(out, 2, entry.handle.data, entry.handle.size)
        out = put_status(out, OK, 3)
    return out
