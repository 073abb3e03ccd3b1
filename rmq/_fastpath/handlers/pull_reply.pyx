"""Writes the reply to a pull, byte for byte as the Python handler does."""

from libc.stdint cimport int32_t, uint8_t

from rmq._fastpath.bytes.ascii cimport put_integer, put_literal, put_text
from rmq._fastpath.handlers.pull_search cimport PullReply
from rmq._fastpath.handlers.pull_table cimport PullTable, PullView
from rmq._fastpath.log.scan cimport ScanResult
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, begin_binary, begin_value, end_frame, end_header, end_json, end_value,
)
from rmq._fastpath.reactor.native cimport Conn, Frame


cdef uint8_t *_put_records(
    PullTable table, uint8_t *out, const ScanResult *found
) noexcept nogil:
    cdef int i
    for i in range(found.run_count):
        out = table.reader.copy(out, found.starts[i], found.sizes[i])
    return out


cdef uint8_t *_put_json(
    int32_t version, uint8_t *out, const Frame *frame, const PullReply *pulled
) noexcept nogil:
    cdef void *view = pulled.view
    out = put_literal(out, b'{"code":')
    out = put_integer(out, pulled.code)
    out = put_literal(out, b',"extFields":{"suggestWhichBrokerId":"0"')
    out = put_literal(out, b',"nextBeginOffset":"')
    out = put_integer(out, pulled.next_offset)
    out = put_literal(out, b'","minOffset":"')
    out = put_integer(out, pulled.low)
    out = put_literal(out, b'","maxOffset":"')
    out = put_integer(out, pulled.high)
    out = put_literal(out, b'"')
    out = put_text(
        out, (<PullView>view).flags.json_text, (<PullView>view).flags.json_size
    )
    out = put_literal(out, b"}")
    return end_json(out, frame, pulled.json_remark, version)


cdef uint8_t *_put_binary(
    int32_t version, uint8_t *out, const Frame *frame, const PullReply *pulled
) noexcept nogil:
    cdef void *view = pulled.view
    cdef uint8_t *fields = begin_binary(
        out, frame, pulled.code, pulled.remark, version
    )
    cdef uint8_t *start
    cdef uint8_t *end
    start = begin_value(fields, b"suggestWhichBrokerId")
    end = end_value(start, put_literal(start, b"0"))
    start = begin_value(end, b"nextBeginOffset")
    end = end_value(start, put_integer(start, pulled.next_offset))
    start = begin_value(end, b"minOffset")
    end = end_value(start, put_integer(start, pulled.low))
    start = begin_value(end, b"maxOffset")
    end = end_value(start, put_integer(start, pulled.high))
    end = put_text(
        end, (<PullView>view).flags.binary_text, (<PullView>view).flags.binary_size
    )
    end_value(fields, end)
    return end


cdef void put_reply(
    PullTable table, const Frame *frame, Conn *conn, const PullReply *pulled,
    const ScanResult *found,
) noexcept nogil:
    """Write header and records to the outbox, which has room for them."""
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *end
    if frame.serialize_type == JSON_TYPE:
        end = _put_json(table.version, start + 8, frame, pulled)
    else:
        end = _put_binary(table.version, start + 8, frame, pulled)
    end_header(start, end, frame.serialize_type)
    conn.ready.end = end_frame(start, _put_records(table, end, found))
