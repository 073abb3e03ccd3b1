"""PopPath: request 200050 that finds messages, as the Python handler would serve it.

It serves plain POPs of the views that Python has registered. Python adds their
checkpoints in one call: it has the tables of checkpoints and their times.
It declines POPs in order and by SQL92, and POPs that find no message. It also declines
those of a group with messages in a retry topic, and what `find_popped` declines.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t

from rmq._fastpath.bytes.ascii cimport is_literal
from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.pop_reply cimport POP_ROOM, put_popped
from rmq._fastpath.handlers.pop_search cimport (
    EMPTY, HEADER, POP_LIMIT, REFUSED, TOO_MUCH, VIEW_UNKNOWN, PopAnswer, PopPart,
    PopRequest, find_popped,
)
from rmq._fastpath.handlers.pop_table cimport PopTable, PopTopic, PopView
from rmq._fastpath.reactor.header_text cimport JSON_TYPE, ONEWAY_FLAG, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, REPLY_ROOM, SERVED, Conn, Frame, NativeHandler, Text,
    Verdict, decline,
)

cdef enum:
    GROUP = 0
    TOPIC = 1
    EXPRESSION_TYPE = 2
    EXPRESSION = 3
    QUEUE_ID = 4
    MAX_MESSAGES = 5
    INVISIBLE_TIME = 6
    POLL_TIME = 7
    BORN_TIME = 8
    INIT_MODE = 9
    ORDER = 10
    BODY_LIMIT = (16 << 20) - POP_ROOM      # of a frame

NAMES = (
    "consumerGroup", "topic", "expType", "exp", "queueId", "maxMsgNums",
    "invisibleTime", "pollTime", "bornTime", "initMode", "order",
)
VARYING = ("queueId", "maxMsgNums", "pollTime", "bornTime")
REASONS = (
    "header", "group or topic", "position", "not in memory", "retry topic", "empty",
    "too much", "checkpoints",
)


@cython.final
cdef class PopPath(NativeHandler):
    """Serves request 200050 POP_MESSAGE."""

    def __init__(self, PopTable table not None):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table

    cdef bint read_request(
        self, const Frame *frame, PopRequest *request
    ) noexcept nogil:
        """Read the numbers of the header; False for unusual values."""
        cdef const Text *texts = frame.fields
        cdef int64_t init_mode
        if frame.flag & ONEWAY_FLAG or frame.serialize_type != JSON_TYPE:
            return False
        if not read_integer(
            &texts[QUEUE_ID], INT32_MIN, INT32_MAX, &request.queue_id
        ):
            return False
        if not read_integer(
            &texts[MAX_MESSAGES], 1, POP_LIMIT, &request.max_messages
        ):
            return False
        if not read_integer(
            &texts[INVISIBLE_TIME], 1, INT64_MAX, &request.invisible_ms
        ):
            return False
        if not read_integer(
            &texts[POLL_TIME], INT64_MIN, INT64_MAX, &request.poll_ms
        ):
            return False
        if not read_integer(
            &texts[BORN_TIME], INT64_MIN, INT64_MAX, &request.born_ms
        ):
            return False
        if not read_integer(&texts[INIT_MODE], INT32_MIN, INT32_MAX, &init_mode):
            return False
        request.now_ms = frame.now_ms
        return texts[ORDER].data == NULL or is_literal(
            texts[ORDER].data, texts[ORDER].size, b"false"
        )

    cdef void *find_view(self, const Frame *frame) noexcept nogil:
        """Find the view of a request by its first four fields."""
        cdef const Text *texts = frame.fields
        cdef Name names[EXPRESSION + 1]
        cdef int i
        if texts[GROUP].data == NULL or texts[TOPIC].data == NULL:
            return NULL
        for i in range(EXPRESSION + 1):
            names[i].data, names[i].size = b"", 0
            if texts[i].data != NULL:
                if texts[i].escaped:
                    return NULL
                names[i].data, names[i].size = texts[i].data, texts[i].size
        return self.table.find_view(names)

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Write a reply with the messages that the POP finds."""
        cdef PopRequest request
        cdef void *view
        if not self.read_request(frame, &request):
            return decline(conn, HEADER)
        view = self.find_view(frame)
        if view == NULL:
            return decline(conn, VIEW_UNKNOWN)
        return self.serve_view(frame, conn, view, &request)

    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil:
        """Find messages, let Python add their checkpoints, and write the reply."""
        cdef PopAnswer answer
        cdef int64_t pop_ms, revive_queue
        if find_popped(self.table, view, request, conn, &answer) == DECLINED:
            return DECLINED
        if answer.count == 0:
            return decline(conn, EMPTY)
        if answer.size > BODY_LIMIT or not conn.grow(conn, POP_ROOM + answer.size):
            return decline(conn, TOO_MUCH)
        added = self.table.on_found(
            <PopView>view, _list_found((<PopView>view).own, &answer),
            request.invisible_ms, answer.remaining, request.queue_id,
        )
        if added is None:
            return decline(conn, REFUSED)
        pop_ms, revive_queue = added
        self.table.drawn = -1
        self.table.count_reads(
            answer.part_count - answer.skipped, answer.count, answer.missed
        )
        put_popped(
            self.table, frame, conn, &answer, request.invisible_ms, pop_ms, revive_queue
        )
        return SERVED


cdef list _list_found(PopTopic topic, const PopAnswer *answer):
    """Return the parts of an answer as `PopTable` describes them."""
    cdef const PopPart *part
    cdef list found = []
    cdef int i, k
    for i in range(answer.part_count):
        part = &answer.parts[i]
        offsets = [answer.offsets[part.first + k] for k in range(part.count)]
        found.append((
            topic.positions[part.queue_id], topic.topic, part.queue_id, part.start,
            part.next_offset, tuple(offsets), part.size,
        ))
    return found
