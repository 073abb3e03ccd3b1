"""LookupPath: requests that Python answers with one number or one body.

Compiled code reads the header and writes the reply; between them one function of Python
looks the value up. A request costs a tenth to a half of a request that Python decodes
and encodes (docs/internals/measurements.md). The reply has the field `offset`, or a
body and no field. Python serves requests for which the function returns None, and
requests with an `absent` field or an unusual header. One difference to Python: messages
of the same poll that are not yet written do not count. Belongs to the thread of the
reactor.
"""

cimport cython
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from libc.stdint cimport INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.ascii cimport put_literal, put_signed, put_text
from rmq._fastpath.handlers.commit_table cimport CommitTable
from rmq._fastpath.reactor.connections cimport Connections
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, ONEWAY_FLAG, begin_binary, begin_value, end_frame, end_header, end_json,
    end_value, put_success, read_integer,
)
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, REPLY_ROOM, SERVED, Conn, Frame, NativeHandler, Text,
    Verdict, decline,
)

cdef enum Reason:
    HEADER = 0
    PYTHON = 1
    ROOM = 2

REASONS = ("header", "the function", "room")


@cython.final
cdef class LookupPath(NativeHandler):
    """Serves one request code."""

    def __init__(
        self, look_up not None, *, texts=(), numbers=(), absent=(), bint has_offset,
        int32_t version, CommitTable commits=None, int64_t body_limit=0,
    ):
        """`look_up(*texts, *numbers)` returns a number or bytes; None: Python serves.

        Python serves requests with one of the `absent` fields. The function sees the
        offsets of the poll in `commits`. `has_offset`: it returns a number. With a
        `body_limit` it gets the body, too, and the token of the connection; Python
        serves longer bodies.
        """
        names = (*texts, *numbers, *absent)
        NativeHandler.__init__(
            self, names, (*texts, *numbers), CONTRACT_VERSION, REASONS
        )
        self.look_up = look_up
        self.commits = commits
        self.text_count = <int32_t>len(texts)
        self.number_count = <int32_t>len(numbers)
        self.field_count = <int32_t>len(names)
        self.has_offset = has_offset
        self.body_limit = body_limit
        self.version = version

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        cdef const Text *texts = frame.fields
        cdef int32_t i
        if frame.flag & ONEWAY_FLAG:
            return decline(conn, HEADER)
        for i in range(self.text_count):
            if texts[i].data == NULL or texts[i].escaped:
                return decline(conn, HEADER)
        for i in range(self.text_count + self.number_count, self.field_count):
            if texts[i].data != NULL:
                return decline(conn, HEADER)
        if self.body_limit and frame.body_size > self.body_limit:
            return decline(conn, ROOM)
        if self.commits is not None:
            self.commits.report_commits()
        return self.put_value(frame, conn)

    cdef object find_value(self, const Frame *frame, Conn *conn):
        """Return the result of the function; None for an error, because Python repeats
        the call.
        """
        cdef const Text *texts = frame.fields
        cdef int64_t number
        cdef int32_t i
        cdef list values = []
        for i in range(self.text_count):
            values.append(texts[i].data[:texts[i].size].decode())
        for i in range(self.text_count, self.text_count + self.number_count):
            if not read_integer(&texts[i], INT64_MIN, INT64_MAX, &number):
                return None
            values.append(number)
        if self.body_limit:
            values.append(
                PyBytes_FromStringAndSize(<const char *>frame.body, frame.body_size)
            )
            values.append((<Connections>conn.owner).token_of(conn.slot))
        try:
            return self.look_up(*values)
        except Exception:
            return None

    cdef Verdict put_value(self, const Frame *frame, Conn *conn) noexcept with gil:
        """Look the value up and write the reply."""
        cdef object value = self.find_value(frame, conn)
        cdef int64_t size
        if value is None:
            return decline(conn, PYTHON)
        if self.has_offset:
            self.put_offset(frame, conn, value)
            return SERVED
        size = PyBytes_GET_SIZE(value)
        if not conn.grow(conn, REPLY_ROOM + size):
            return decline(conn, ROOM)
        _put_body(
            frame, conn, self.version, <const uint8_t *>PyBytes_AS_STRING(value), size
        )
        return SERVED

    cdef void put_offset(
        self, const Frame *frame, Conn *conn, int64_t offset
    ) noexcept nogil:
        """Write a reply with the field `offset`."""
        cdef uint8_t *start = conn.ready.end
        cdef uint8_t *fields
        cdef uint8_t *value
        cdef uint8_t *end
        if frame.serialize_type == JSON_TYPE:
            end = put_literal(start + 8, b'{"code":0,"extFields":{"offset":"')
            end = put_literal(put_signed(end, offset), b'"}')
            end = end_json(end, frame, b"", self.version)
        else:
            fields = begin_binary(start + 8, frame, 0, b"", self.version)
            value = begin_value(fields, b"offset")
            end = end_value(value, put_signed(value, offset))
            end_value(fields, end)
        end_header(start, end, frame.serialize_type)
        conn.ready.end = end_frame(start, end)


cdef void _put_body(
    const Frame *frame, Conn *conn, int32_t version, const uint8_t *body, int64_t size
) noexcept nogil:
    """Write a reply with a body and no field; there is room for it."""
    cdef uint8_t *start = conn.ready.end
    put_success(frame, conn, version)
    conn.ready.end = end_frame(
        start, put_text(conn.ready.end, <const char *>body, size)
    )
