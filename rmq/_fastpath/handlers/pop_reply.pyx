"""Writes the reply to a POP, byte for byte as the Python handler does.

The header is JSON: a binary one has no room for the code 200050. Its last fields have
one item for each queue, joined by `;`:

    startOffsetInfo  0 <queue> <offset at which the POP began to read>
    msgOffsetInfo    0 <queue> <offset>,<offset>…
"""

from libc.stdint cimport int64_t, uint8_t

from rmq._fastpath.bytes.ascii cimport put_integer, put_literal
from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopPart
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, end_frame, end_header, end_json,
)
from rmq._fastpath.reactor.native cimport Conn, Frame

cdef enum:
    POLLING_TIMEOUT = 210       # no message has come


cdef uint8_t *_put_queue(
    uint8_t *out, const PopPart *part, bint is_first
) noexcept nogil:
    """Write the flag of the topic itself, and the queue."""
    if not is_first:
        out = put_literal(out, b";")
    out = put_integer(put_literal(out, b"0 "), part.queue_id)
    return put_literal(out, b" ")


cdef uint8_t *_put_infos(uint8_t *out, const PopAnswer *answer) noexcept nogil:
    cdef const PopPart *part
    cdef bint is_first = True
    cdef int i, k
    out = put_literal(out, b'","startOffsetInfo":"')
    for i in range(answer.part_count):
        part = &answer.parts[i]
        if part.count:
            out = put_integer(_put_queue(out, part, is_first), part.start)
            is_first = False
    out = put_literal(out, b'","msgOffsetInfo":"')
    is_first = True
    for i in range(answer.part_count):
        part = &answer.parts[i]
        if part.count:
            out = _put_queue(out, part, is_first)
            is_first = False
            for k in range(part.count):
                if k:
                    out = put_literal(out, b",")
                out = put_integer(out, answer.offsets[part.first + k])
    return out


cdef void put_popped(
    PopTable table, const Frame *frame, Conn *conn, const PopAnswer *answer,
    int64_t invisible_ms, int64_t pop_ms, int64_t revive_queue,
) noexcept nogil:
    """Write header and records to the outbox, which has room for them."""
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *out = start + 8
    cdef int i
    out = put_literal(out, b'{"code":')
    out = put_integer(out, 0 if answer.count else POLLING_TIMEOUT)
    out = put_literal(out, b',"extFields":{"popTime":"')
    out = put_integer(out, pop_ms)
    out = put_literal(out, b'","invisibleTime":"')
    out = put_integer(out, invisible_ms)
    out = put_literal(out, b'","reviveQid":"')
    out = put_integer(out, revive_queue)
    out = put_literal(out, b'","restNum":"')
    out = put_integer(out, answer.remaining)
    out = put_literal(_put_infos(out, answer), b'"}')
    if answer.count:
        out = end_json(out, frame, b',"remark":"FOUND"', table.version)
    else:
        out = end_json(out, frame, b',"remark":"NO_MESSAGE_IN_QUEUE"', table.version)
    end_header(start, out, JSON_TYPE)
    for i in range(answer.run_count):
        out = table.pulls.reader.copy(out, answer.starts[i], answer.sizes[i])
    conn.ready.end = end_frame(start, out)
