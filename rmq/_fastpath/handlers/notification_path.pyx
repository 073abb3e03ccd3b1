"""NotificationPath: request 200054, whether a group has messages to pop.

It serves the groups, topics and filters of registered views. Python holds a request
that finds no message and may wait, and calls `resume` after a message has come. The
header is JSON: a binary one has no room for the code 200054.
Belongs to the thread of the reactor.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint8_t, uint32_t,
    uint64_t,
)

from rmq._fastpath.bytes.ascii cimport is_literal, put_literal
from rmq._fastpath.handlers.pop_search cimport (
    EMPTY, HEADER, VIEW_UNKNOWN, PopRequest, has_messages,
)
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.connections cimport Connections, Slot
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, ONEWAY_FLAG, end_frame, end_header, end_json, read_integer,
)
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, KEPT, SERVED, Conn, Frame, NativeHandler, Text, Verdict,
    decline,
)

cdef enum:
    QUEUE_ID = 4                # index of the field after the four fields of a view
    POLL_TIME = 5
    BORN_TIME = 6
    ORDER = 7
    ANSWER_ROOM = 256

NAMES = (
    "consumerGroup", "topic", "expType", "exp", "queueId", "pollTime", "bornTime",
    "order",
)
VARYING = ("queueId", "pollTime", "bornTime")
REASONS = (
    "header", "group or topic", "position", "not in memory", "odd record", "empty",
)


@cython.final
cdef class NotificationPath(NativeHandler):
    """Serves request 200054 NOTIFICATION."""

    def __init__(self, PopTable table not None):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Reply whether the group has messages to pop."""
        cdef const Text *texts = frame.fields
        cdef PopRequest request
        cdef void *view
        self.connections = conn.owner
        if frame.flag & ONEWAY_FLAG or frame.serialize_type != JSON_TYPE:
            return decline(conn, HEADER)
        if not (
            read_integer(&texts[QUEUE_ID], INT32_MIN, INT32_MAX, &request.queue_id)
            and read_integer(
                &texts[POLL_TIME], INT64_MIN, INT64_MAX, &request.poll_ms
            )
            and read_integer(
                &texts[BORN_TIME], INT64_MIN, INT64_MAX, &request.born_ms
            )
        ):
            return decline(conn, HEADER)
        if texts[ORDER].data != NULL and not is_literal(
            texts[ORDER].data, texts[ORDER].size, b"false"
        ):
            return decline(conn, HEADER)
        view = self.table.find_view(frame)
        if view == NULL:
            return decline(conn, VIEW_UNKNOWN)
        return self.serve_view(frame, conn, view, &request)

    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil:
        """Search for messages, and reply or let Python hold the request."""
        cdef bint is_found = False
        if has_messages(self.table, view, request, conn, &is_found) == DECLINED:
            return DECLINED
        if is_found or request.poll_ms <= 0:
            _put_answer(self.table, frame, conn, is_found)
            return SERVED
        is_urgent = self.table.on_notice(
            <PopView>view,
            (<Connections>conn.owner).token_of(conn.slot),
            PyBytes_FromStringAndSize(<const char *>frame.start, frame.size),
            frame.opaque,
            (request.queue_id, request.poll_ms, request.born_ms),
        )
        if is_urgent is None:
            return decline(conn, EMPTY)
        if is_urgent:
            self.is_urgent = True
        return KEPT

    def resume(
        self, PopView view not None, uint64_t token, *, int32_t opaque,
        int64_t queue_id,
    ):
        """Reply to a notification that waited; False if Python has to serve it.

        It looks for messages with the view, which may be removed by now. The caller
        sends the reply by `poll_soon`.
        """
        cdef Frame frame
        cdef Conn conn
        cdef PopRequest request
        cdef Slot *slot
        cdef bint is_found = False
        if self.connections == NULL or self.table.views.get(view.name) is not view:
            return False
        slot = (<Connections>self.connections).find(token)
        if slot == NULL:
            return False
        request.queue_id = queue_id
        frame.opaque, frame.serialize_type = opaque, JSON_TYPE
        conn.owner, conn.slot = self.connections, <uint32_t>token
        if has_messages(
            self.table, <void *>view, &request, &conn, &is_found
        ) == DECLINED or not is_found:
            return False
        if not (<Connections>self.connections).reserve(conn.slot, ANSWER_ROOM):
            return False
        conn.ready.end = slot.outbox.data + slot.outbox.end
        _put_answer(self.table, &frame, &conn, True)
        slot.outbox.end = conn.ready.end - slot.outbox.data
        (<Connections>self.connections).mark_dirty(conn.slot)
        return True


cdef void _put_answer(
    PopTable table, const Frame *frame, Conn *conn, bint is_found
) noexcept nogil:
    """Write the reply."""
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *out = put_literal(start + 8, b'{"code":0,"extFields":{"hasMsg":"')
    if is_found:
        out = put_literal(out, b"true")
    else:
        out = put_literal(out, b"false")
    out = put_literal(out, b'","pollingFull":"false"}')
    out = end_json(
        out, frame, b',"remark":"not set any response code"', table.version
    )
    end_header(start, out, JSON_TYPE)
    conn.ready.end = end_frame(start, out)
