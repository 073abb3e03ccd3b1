"""Writes the reply to a POP, byte for byte as the Python handler does.

The header is JSON: a binary one has no room for the code 200050. Its last fields have
one item for each queue, joined by `;`:

    startOffsetInfo  <flag> <queue> <offset at which the POP began to read>
    msgOffsetInfo    <flag> <queue> <offset>,<offset>…

A record of a retry topic is addressed to the original topic: it gets the name of this
topic. Its handle becomes the property POP_CK.
"""

from libc.stdint cimport int64_t, uint8_t, uint16_t, uint32_t
from libc.string cimport memchr, memcmp, memcpy, memmove

from rmq._fastpath.bytes.ascii cimport is_literal, put_integer, put_literal
from rmq._fastpath.bytes.endian cimport get32, put16, put32
from rmq._fastpath.handlers.pop_search cimport PopAnswer, PopPart
from rmq._fastpath.handlers.pop_table cimport PopTable, PopTopic, PopView
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.layout cimport RecordLayout, RecordMagic
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, end_frame, end_header, end_json,
)
from rmq._fastpath.reactor.native cimport Conn, Frame

cdef enum:
    POLLING_TIMEOUT = 210       # no message has come
    NAME_END = 1                # in the text of properties
    PAIR_END = 2
    PAIR_LIMIT = 64             # maximum properties of a record


cdef uint8_t *_put_queue(
    uint8_t *out, const PopPart *part, bint is_first
) noexcept nogil:
    """Write the flag of the topic, and the queue."""
    if not is_first:
        out = put_literal(out, b";")
    out = put_integer(out, (<PopTopic>part.topic).flag)
    out = put_integer(put_literal(out, b" "), part.queue_id)
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


cdef bint _has_plain_pairs(
    const uint8_t *text, int64_t size, bint *has_handle
) noexcept nogil:
    """True if a text of properties is as the encoder writes it, without a name twice.
    """
    cdef const uint8_t *names[PAIR_LIMIT]
    cdef int64_t sizes[PAIR_LIMIT]
    cdef const uint8_t *end = text + size
    cdef const uint8_t *middle
    cdef const uint8_t *stop
    cdef int i, count = 0
    has_handle[0] = False
    while text < end:
        stop = <const uint8_t *>memchr(text, PAIR_END, end - text)
        if stop == NULL or count == PAIR_LIMIT:
            return False
        middle = <const uint8_t *>memchr(text, NAME_END, stop - text)
        if middle == NULL or middle == text or middle + 1 == stop:
            return False
        names[count], sizes[count] = text, middle - text
        for i in range(count):
            if sizes[i] == sizes[count] and not memcmp(names[i], text, sizes[i]):
                return False
        has_handle[0] |= is_literal(text, sizes[count], b"POP_CK")
        count += 1
        text = stop + 1
    return True


cdef uint8_t *_address_record(
    uint8_t *record, int64_t size, bytes topic, bytes broker, const PopPart *part,
    int64_t offset, const PopStamp *stamp,
) noexcept:
    """Address a record, which has room at its end; return its new end.

    NULL for a record of version 2, or with unusual properties: Python addresses it.
    """
    cdef RecordParts parts
    cdef const uint8_t *name = topic
    cdef uint8_t *properties
    cdef uint8_t *out
    cdef bint has_handle
    if (
        split_record(record, size, False, &parts) != OK
        or parts.magic != <int32_t>RecordMagic.MAGIC_V1
        or len(topic) > parts.topic_size
        or not _has_plain_pairs(
            record + parts.properties_at, parts.properties_size, &has_handle
        )
    ):
        return NULL
    record[parts.topic_at - 1] = <uint8_t>len(topic)
    memcpy(record + parts.topic_at, name, len(topic))
    properties = record + parts.topic_at + len(topic) + 2
    memmove(properties, record + parts.properties_at, parts.properties_size)
    out = properties + parts.properties_size
    if not has_handle:
        out = put_literal(out, b"POP_CK\x01")
        out = put_integer(out, part.start)
        out = put_integer(put_literal(out, b" "), stamp.pop_ms)
        out = put_integer(put_literal(out, b" "), stamp.invisible_ms)
        out = put_integer(put_literal(out, b" "), stamp.revive_queue)
        out = put_integer(put_literal(out, b" "), (<PopTopic>part.topic).flag)
        out = put_literal(out, b" ")
        name = broker
        memcpy(out, name, len(broker))
        out = put_literal(out + len(broker), b" ")
        out = put_integer(out, part.queue_id)
        out = put_integer(put_literal(out, b" "), offset)
        out = put_literal(out, b"\x02")
    if out - properties > RecordLayout.PROPERTIES_LIMIT:
        return NULL
    put16(properties - 2, <uint16_t>(out - properties))
    put32(record, <uint32_t>(out - record))
    return out


cdef uint8_t *_put_retries(
    uint8_t *out, PopTable table, bytes topic, const PopAnswer *answer,
    const PopPart *part, const PopStamp *stamp,
) noexcept:
    """Write the records of a queue of a retry topic; NULL: Python has to write them."""
    cdef int64_t position, left, size
    cdef int run, k = 0
    for run in range(part.first_run, part.first_run + part.run_count):
        position, left = answer.starts[run], answer.sizes[run]
        while left > 0:
            table.pulls.reader.copy(out, position, 4)
            size = get32(out)
            table.pulls.reader.copy(out, position, size)
            out = _address_record(
                out, size, topic, table.broker_name, part,
                answer.offsets[part.first + k], stamp,
            )
            if out == NULL:
                return NULL
            k += 1
            position += size
            left -= size
    return out


cdef uint8_t *_put_records(
    uint8_t *out, PopTable table, PopView view, const PopAnswer *answer,
    const PopStamp *stamp,
) noexcept:
    """Write the records of an answer; NULL: Python has to write them."""
    cdef const PopPart *part
    cdef int i, run
    for i in range(answer.part_count):
        part = &answer.parts[i]
        if not part.count:
            continue
        if (<PopTopic>part.topic).flag and not view.shows_retry_topic:
            out = _put_retries(
                out, table, view.own.topic_bytes, answer, part, stamp
            )
            if out == NULL:
                return NULL
            continue
        for run in range(part.first_run, part.first_run + part.run_count):
            out = table.pulls.reader.copy(out, answer.starts[run], answer.sizes[run])
    return out


cdef bint put_popped(
    PopTable table, PopView view, const Frame *frame, Conn *conn,
    const PopAnswer *answer, const PopStamp *stamp,
) noexcept:
    """Write header and records to the outbox, which has room for them.

    False for records that Python has to write; the outbox is as before then.
    """
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *out = start + 8
    out = put_literal(out, b'{"code":')
    out = put_integer(out, 0 if answer.count else POLLING_TIMEOUT)
    out = put_literal(out, b',"extFields":{"popTime":"')
    out = put_integer(out, stamp.pop_ms)
    out = put_literal(out, b'","invisibleTime":"')
    out = put_integer(out, stamp.invisible_ms)
    out = put_literal(out, b'","reviveQid":"')
    out = put_integer(out, stamp.revive_queue)
    out = put_literal(out, b'","restNum":"')
    out = put_integer(out, answer.remaining)
    out = put_literal(_put_infos(out, answer), b'"}')
    if answer.count:
        out = end_json(out, frame, b',"remark":"FOUND"', table.version)
    else:
        out = end_json(out, frame, b',"remark":"NO_MESSAGE_IN_QUEUE"', table.version)
    end_header(start, out, JSON_TYPE)
    out = _put_records(out, table, view, answer, stamp)
    if out == NULL:
        return False
    conn.ready.end = end_frame(start, out)
    return True
