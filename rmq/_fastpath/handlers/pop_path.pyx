"""PopPath: request 200050 that finds messages, as the Python handler would serve it.

It serves plain POPs of the views that Python has registered, and adds their checkpoints
to the `CheckpointTable`.
A POP that finds no message and may wait is kept: Python holds it, and calls `resume`
after a message has come. It declines POPs in order and by SQL92, POPs that
`find_popped` declines, and records of a retry topic that `put_popped` cannot address to
the topic. Belongs to the thread of the reactor.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t, uint64_t,
)

from rmq._fastpath.bytes.ascii cimport is_literal
from rmq._fastpath.handlers.checkpoint cimport Checkpoint, PopQueue
from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.handlers.pop_reply cimport (
    HANDLE_ROOM, POP_ROOM, PopStamp, put_popped,
)
from rmq._fastpath.handlers.pop_search cimport (
    EMPTY, HEADER, ODD_RECORD, POP_LIMIT, REFUSED, TOO_MUCH, VIEW_UNKNOWN, PopAnswer,
    PopPart,
    PopRequest, find_popped,
)
from rmq._fastpath.handlers.pop_table cimport PopTable, PopTopic, PopView
from rmq._fastpath.handlers.pull_table cimport Served
from rmq._fastpath.log.waiters cimport wake_waiters
from rmq._fastpath.reactor.connections cimport Connections, Slot
from rmq._fastpath.reactor.header_text cimport JSON_TYPE, ONEWAY_FLAG, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, KEPT, SERVED, Conn, Frame, NativeHandler, Text, Verdict,
    decline,
)

cdef enum:
    QUEUE_ID = 4                # index of the field after the four fields of a view
    MAX_MESSAGES = 5
    INVISIBLE_TIME = 6
    POLL_TIME = 7
    BORN_TIME = 8
    INIT_MODE = 9
    ORDER = 10
    BODY_LIMIT = (16 << 20) - POP_ROOM      # bytes of the body of a frame

NAMES = (
    "consumerGroup", "topic", "expType", "exp", "queueId", "maxMsgNums",
    "invisibleTime", "pollTime", "bornTime", "initMode", "order",
)
VARYING = ("queueId", "maxMsgNums", "pollTime", "bornTime")
REASONS = (
    "header", "group or topic", "position", "not in memory", "odd record", "empty",
    "too much", "checkpoints",
)


@cython.final
cdef class PopPath(NativeHandler):
    """Serves request 200050 POP_MESSAGE."""

    def __init__(self, PopTable table not None):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table

    @property
    def is_used(self):
        """True after the first frame; before it, views have no use."""
        return self.connections != NULL

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

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Write a reply with the messages that the POP finds."""
        cdef PopRequest request
        cdef void *view
        self.connections = conn.owner
        if not self.read_request(frame, &request):
            return decline(conn, HEADER)
        view = self.table.find_view(frame)
        if view == NULL:
            return decline(conn, VIEW_UNKNOWN)
        return self.serve_view(frame, conn, view, &request, False)

    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request,
        bint has_waited,
    ) noexcept with gil:
        """Find messages, add their checkpoints, and write the reply."""
        cdef PopAnswer answer
        cdef PopStamp stamp
        if find_popped(self.table, view, request, conn, &answer) == DECLINED:
            return DECLINED
        if answer.count == 0:
            if has_waited or answer.skipped:
                return decline(conn, EMPTY)
            if request.poll_ms > 0:
                self.table.count_reads(0, 0, answer.missed)
                return self.hold_request(frame, conn, <PopView>view, request)
        stamp.invisible_ms = request.invisible_ms
        stamp.pop_ms = self.table.checkpoints.clock_ms()
        stamp.revive_queue = self.table.next_revive_queue()
        if not _can_add(self.table, &answer, stamp.pop_ms):
            return decline(conn, REFUSED)
        if self.write_reply(
            frame, conn, <PopView>view, &answer, &stamp
        ) == DECLINED:
            return DECLINED
        self.table.pops += 1
        self.table.drawn = -1
        if _add_checkpoints(self.table, &answer, &stamp):
            self.is_urgent = True
        if answer.count and answer.remaining:
            wake_waiters((<PopView>view).own.watch.waiters)
            if (<PopView>view).own.watch.count:
                self.table.on_remaining(<PopView>view, request.queue_id)
                self.is_urgent = True
        self.table.count_reads(
            answer.part_count - answer.skipped, answer.count, answer.missed
        )
        return SERVED

    cdef Verdict write_reply(
        self, const Frame *frame, Conn *conn, PopView view, const PopAnswer *answer,
        const PopStamp *stamp,
    ) except *:
        """Write the reply in the form of its protocol."""
        cdef int64_t room = POP_ROOM
        if self.put_reply != NULL:
            if not self.put_reply(self.front, self.table, answer, stamp):
                return decline(conn, ODD_RECORD)
            return SERVED
        if answer.has_retries:
            room += answer.count * (HANDLE_ROOM + len(self.table.broker_name))
        if answer.size > BODY_LIMIT or not conn.grow(conn, room + answer.size):
            return decline(conn, TOO_MUCH)
        if not put_popped(self.table, view, frame, conn, answer, stamp):
            return decline(conn, ODD_RECORD)
        return SERVED

    cdef Verdict hold_request(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request
    ) except *:
        """Let Python hold a POP that has found nothing."""
        is_urgent = self.table.on_wait(
            view,
            (<Connections>conn.owner).token_of(conn.slot),
            PyBytes_FromStringAndSize(<const char *>frame.start, frame.size),
            frame.opaque,
            (
                request.queue_id, request.max_messages, request.invisible_ms,
                request.poll_ms, request.born_ms,
            ),
            self.waiter,
        )
        if is_urgent is None:
            return decline(conn, EMPTY)
        if is_urgent:
            self.is_urgent = True
        self.table.drawn = -1
        return KEPT

    cdef bint end_of_poll(self) noexcept nogil:
        """Let Python commit the offsets that have moved."""
        self.table.checkpoints.report()
        return True

    def resume(
        self, PopView view not None, uint64_t token, *, int32_t opaque,
        int64_t queue_id, int64_t max_messages, int64_t invisible_ms,
    ):
        """Reply to a POP that waited; False if Python has to serve it.

        It finds messages with the view, which may be removed by now. The caller sends
        the reply by `poll_soon`.
        """
        cdef Frame frame
        cdef Conn conn
        cdef PopRequest request
        cdef Slot *slot
        if self.connections == NULL or self.table.views.get(view.name) is not view:
            return False
        slot = (<Connections>self.connections).find(token)
        if slot == NULL:
            return False
        request.queue_id, request.max_messages = queue_id, max_messages
        request.invisible_ms, request.poll_ms, request.born_ms = invisible_ms, 0, 0
        request.now_ms = (<Connections>self.connections).now_ms
        frame.opaque, frame.serialize_type = opaque, JSON_TYPE
        conn.owner, conn.slot, conn.grow = self.connections, <uint32_t>token, _grow
        if self.serve_view(&frame, &conn, <void *>view, &request, True) == DECLINED:
            return False
        slot.outbox.end = conn.ready.end - slot.outbox.data
        (<Connections>self.connections).mark_dirty(conn.slot)
        self.table.checkpoints.report()     # the next poll with a POP may come late
        return True


cdef bint _grow(Conn *conn, int64_t size) noexcept nogil:
    """Make room in the outbox of a connection whose POP has waited."""
    cdef Slot *slot = (<Connections>conn.owner).slots[conn.slot]
    if not (<Connections>conn.owner).reserve(conn.slot, size):
        return False
    conn.ready.end = slot.outbox.data + slot.outbox.end
    return True


cdef bint _can_add(
    PopTable table, const PopAnswer *answer, int64_t pop_ms
) except -1:
    """True if the table has room for the checkpoints of an answer."""
    cdef const PopPart *part
    cdef int i
    if table.checkpoints.count + answer.part_count > table.checkpoints.limit:
        return False
    for i in range(answer.part_count):
        part = &answer.parts[i]
        if not table.checkpoints.can_add(
            (<PopTopic>part.topic).positions[part.queue_id], part.start, pop_ms
        ):
            return False
    return True


cdef bint _add_checkpoints(
    PopTable table, const PopAnswer *answer, const PopStamp *stamp
) except -1:
    """Move the positions of the queues, and add a checkpoint for each.

    True if Python has to wake up earlier than before.
    """
    cdef CheckpointTable checkpoints = table.checkpoints
    cdef int64_t now_ms = checkpoints.steady_ms()
    cdef int64_t wake_ms = checkpoints.wake_ms
    cdef int64_t log_end = table.pulls.end_offset()
    cdef int64_t invisible_ms = min(stamp.invisible_ms, table.invisible_limit_ms)
    cdef const PopPart *part
    cdef PopQueue queue
    cdef Checkpoint checkpoint
    cdef int i
    for i in range(answer.part_count):
        part = &answer.parts[i]
        queue = (<PopTopic>part.topic).positions[part.queue_id]
        queue.next_offset = part.next_offset
        if not part.count:
            checkpoints.touch(queue)
            continue
        checkpoint = Checkpoint.__new__(Checkpoint)
        checkpoint.set_offsets(&answer.offsets[part.first], part.count)
        checkpoint.queue, checkpoint.start = queue, part.start
        checkpoint.pop_ms, checkpoint.invisible_ms = stamp.pop_ms, invisible_ms
        checkpoint.revive_queue, checkpoint.log_end = stamp.revive_queue, log_end
        checkpoints.insert_new(checkpoint, now_ms)
        checkpoints.touch_if_moved(queue, part.committed)
        _count_part(<PopTopic>part.topic, part)
    return checkpoints.wake_ms < wake_ms


cdef void _count_part(PopTopic topic, const PopPart *part) noexcept:
    """Count a read that found messages."""
    cdef Served *served = &topic.pulls.queues[part.queue_id].served
    served.pulls += 1
    served.messages += part.count
    served.size += part.size
    served.next_offset = part.next_offset
    topic.pulls.has_served = True
