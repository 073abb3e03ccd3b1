"""PopPath: request 200050 that finds messages, as the Python handler would serve it.

It serves plain POPs of the views that Python has registered, and adds their checkpoints
to the `CheckpointTable`. It declines POPs in order and by SQL92, POPs that
`find_popped` declines, and records of a retry topic that `put_popped` cannot address to
the topic.
A POP that finds no message may wait here (`held_pulls.pyx`). The POPs of one view wait
in groups: those of any queue, and those of each queue. A compiled send to the topic or
the queue marks the group ready, and so does a POP that leaves messages. Python does it
for other messages (`report_arrival`). Then the end of the poll serves the POP of the
group that has waited longest. A POP also ends at its deadline and when its connection
closes. Python gets the frame of a POP back if the view is removed, or if compiled code
declines it. Calls of another protocol (`PopFront`) wait among the frames.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int32_t, int64_t, uint32_t,
)

from rmq._fastpath.bytes.ascii cimport is_literal
from rmq._fastpath.bytes.syscalls cimport monotonic_ns
from rmq._fastpath.handlers.checkpoint cimport Checkpoint, PopQueue
from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPull, Pull, new_group
from rmq._fastpath.handlers.pop_reply cimport (
    HANDLE_ROOM, POP_ROOM, PopStamp, put_popped,
)
from rmq._fastpath.handlers.pop_search cimport (
    EMPTY, HEADER, ODD_RECORD, POP_LIMIT, REFUSED, TOO_MUCH, VIEW_UNKNOWN, PopAnswer,
    PopPart,
    PopRequest, count_visible, find_popped,
)
from rmq._fastpath.handlers.pop_table cimport PopTable, PopTopic, PopView
from rmq._fastpath.handlers.pull_table cimport Served, ViewQueue
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.waiters cimport mark_ready
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
    TURN_NS = 500_000           # maximum time of a turn for POPs that wait
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
        self.table, self.held = table, table.held
        self.takes_turns = True

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
        return self.serve_view(frame, conn, view, &request)

    cdef Verdict serve_view(
        self, const Frame *frame, Conn *conn, void *view, const PopRequest *request
    ) noexcept with gil:
        """Find messages and write the reply; without a message the POP may wait."""
        cdef PopAnswer answer
        if find_popped(self.table, view, request, conn, &answer) == DECLINED:
            return DECLINED
        if answer.count == 0 and request.poll_ms > 0:
            return self.hold_request(frame, conn, <PopView>view, request, &answer)
        return self.send_reply(frame, conn, <PopView>view, request, &answer)

    cdef Verdict send_reply(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request,
        const PopAnswer *answer,
    ) except *:
        """Add the checkpoints of the found messages, and write the reply."""
        cdef PopStamp stamp
        stamp.invisible_ms = request.invisible_ms
        stamp.pop_ms = self.table.checkpoints.clock_ms()
        stamp.revive_queue = self.table.next_revive_queue()
        if not _can_add(self.table, answer, stamp.pop_ms):
            return decline(conn, REFUSED)
        if self.write_reply(frame, conn, view, answer, &stamp) == DECLINED:
            return DECLINED
        self.table.count_pop()
        if _add_checkpoints(self.table, answer, &stamp):
            self.is_urgent = True
        if answer.count and answer.remaining:
            view.wake_waiting()
            if view.own.watch.count:
                self.table.on_remaining(view, request.queue_id)
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
        if self.front != NULL:
            if not self.front.put_reply(
                self.front.held.owner, self.table, answer, stamp
            ):
                return decline(conn, ODD_RECORD)
            return SERVED
        if answer.has_retries:
            room += answer.count * (HANDLE_ROOM + len(self.table.broker_name))
        if answer.size > BODY_LIMIT or not conn.grow(conn, room + answer.size):
            return decline(conn, TOO_MUCH)
        if not put_popped(self.table, view, frame, conn, answer, stamp):
            return decline(conn, ODD_RECORD)
        return SERVED

    cdef bint end_of_poll(self) noexcept nogil:
        """Let Python commit the offsets that have moved."""
        self.table.checkpoints.report()
        return True

    # -- POPs that wait

    cdef Verdict hold_request(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request,
        const PopAnswer *answer,
    ) except *:
        """Hold a POP that has found nothing until messages come."""
        cdef int64_t wake_ms = self.held.wake_ms
        cdef HeldGroup *group = self.find_group(view, request.queue_id)
        cdef bint has_hidden = False
        cdef Pull pull
        pull.queue_id, pull.max_messages = request.queue_id, request.max_messages
        pull.invisible_ms, pull.now_ms = request.invisible_ms, frame.now_ms
        pull.offset = count_visible(self.table, view, &has_hidden)
        pull.suspend_ms = self.table.time_left(request.poll_ms, request.born_ms)
        if not _can_add(self.table, answer, self.table.checkpoints.clock_ms()):
            return decline(conn, REFUSED)
        if group == NULL or not self.held.hold_pull(
            group, &pull, (<Connections>conn.owner).token_of(conn.slot),
            frame.opaque, JSON_TYPE, frame.start, frame.size,
        ):
            self.held.refused += 1
            return decline(conn, EMPTY)
        if self.front != NULL:
            self.held.count_call(group.last, &self.front.held)
        self.skip_messages(group, answer)
        if has_hidden:
            mark_ready(&group.waiter)
        if self.held.wake_ms < wake_ms:
            self.is_urgent = True
        return KEPT

    cdef HeldGroup *find_group(self, PopView view, int64_t queue_id) noexcept:
        """Return the group of POPs that wait for a queue, negative: for any queue.

        NULL: the queue is not known, or there is no memory.
        """
        cdef HeldGroup *group = view.group_of(queue_id)
        cdef ViewQueue *queue
        if group != NULL:
            return group
        if queue_id < 0:
            group = view.popping = new_group(
                <void *>view, NULL, &view.own.watch.waiters, self.held
            )
        elif queue_id < view.own.pulls.queue_count:
            queue = &view.own.pulls.queues[queue_id]
            if queue.tail == NULL:
                return NULL
            group = queue.group = new_group(
                <void *>view, queue.tail, &(<QueueTail>queue.tail).waiters, self.held
            )
            view.queue_groups += 1
        return group

    cdef int skip_messages(self, HeldGroup *group, const PopAnswer *answer) except -1:
        """Skip the messages that do not match, after a search without a result."""
        cdef const PopPart *part
        cdef PopQueue queue
        cdef int i
        for i in range(answer.part_count):
            part = &answer.parts[i]
            queue = (<PopTopic>part.topic).positions[part.queue_id]
            queue.next_offset = part.next_offset
            self.table.checkpoints.touch(queue)
        self.table.count_reads(0, 0, answer.missed)
        if answer.remaining:
            mark_ready(&group.waiter)
        return 0

    def count_waiting(self, PopView view not None, int64_t queue_id):
        """Return the number of POPs that wait for a queue, negative: for any queue."""
        cdef HeldGroup *group = view.group_of(queue_id)
        return 0 if group == NULL else group.count

    def wake(self, PopView view not None):
        """Let the next poll look for messages for the requests of a view that wait."""
        view.wake_waiting()

    def report_arrival(self, PopView view not None):
        """Wake the POPs of a view, unless the arrival was seen in its poll."""
        cdef int64_t end
        cdef int32_t i
        cdef HeldGroup *group
        if view.popping == NULL and not view.queue_groups:
            return
        end = count_visible(self.table, view, NULL)
        for i in range(-1, view.own.pulls.queue_count if view.queue_groups else 0):
            group = view.group_of(i)
            if group != NULL and (end < 0 or end != group.tested_offset):
                mark_ready(&group.waiter)

    def end_all(self, int64_t now_ms):
        """Reply to every POP that waits and hold no more: the broker stops."""
        self.held.end_all()
        while self.take_turn(now_ms):
            pass

    cdef bint take_turn(self, int64_t now_ms) noexcept nogil:
        """Reply to POPs whose messages came, and to POPs that are due."""
        self.held.expire(now_ms)
        if not self.held.has_work():
            return False
        return self.serve_waiting(now_ms)

    cdef bint serve_waiting(self, int64_t now_ms) noexcept with gil:
        """Reply within the time of a turn; True if another turn is needed.

        Each arrival serves one POP of a group. A POP that leaves messages makes the
        group ready again.
        """
        cdef int64_t returned = self.held.returned
        cdef int64_t until_ns = monotonic_ns() + TURN_NS
        cdef HeldGroup *group = self.held.next_ready()
        while group != NULL:
            if group.first != NULL and not self.serve_waiter(
                group.first, now_ms, False
            ):
                mark_ready(&group.waiter)
            if monotonic_ns() >= until_ns:
                break
            group = self.held.next_ready()
        while self.held.due != NULL and monotonic_ns() < until_ns:
            self.serve_waiter(self.held.due, now_ms, True)
        self.table.checkpoints.report()
        if self.held.returned > returned:
            self.is_urgent = True
        return self.held.ready.first != NULL or self.held.due != NULL

    cdef bint serve_waiter(
        self, HeldPull *waiter, int64_t now_ms, bint is_due
    ) noexcept:
        """Reply to a POP if there are messages, or if its time is over.

        False if its connection is closed, or has no room: the next POP may have the
        messages.
        """
        cdef Verdict verdict
        if (<Connections>self.connections).find(waiter.token) == NULL:
            self.held.remove_pull(waiter)
            self.held.dropped += 1
            return False
        if waiter.front != NULL and not waiter.front.begin_call(
            waiter.front.owner, waiter
        ):
            self.held.return_pull(waiter, 0)
            return False
        self.front = <PopFront *>waiter.front
        verdict = self.pop_for(waiter, now_ms, is_due)
        self.front = NULL
        if verdict == DECLINED:
            self.held.return_pull(waiter, 0)
        elif verdict == SERVED:
            self.held.remove_pull(waiter)
        return True

    cdef Verdict pop_for(
        self, HeldPull *waiter, int64_t now_ms, bint is_due
    ) noexcept:
        """Find messages for a POP that waits, and reply; KEPT: it waits longer.

        Messages that are not visible yet are work for Python: it flushes them, and
        reports them when they are.
        """
        cdef PopView view = <PopView>waiter.group.view
        cdef bint has_hidden = False
        cdef PopAnswer answer
        cdef PopRequest request
        cdef Frame frame
        cdef Conn conn
        request.queue_id = waiter.pull.queue_id
        request.max_messages = waiter.pull.max_messages
        request.invisible_ms = waiter.pull.invisible_ms
        request.poll_ms = request.born_ms = 0
        request.now_ms = now_ms
        frame.opaque, frame.serialize_type = waiter.opaque, JSON_TYPE
        conn.owner, conn.slot = self.connections, <uint32_t>waiter.token
        conn.grow = _grow
        waiter.group.tested_offset = count_visible(self.table, view, &has_hidden)
        if find_popped(self.table, <void *>view, &request, &conn, &answer) == DECLINED:
            return DECLINED
        if answer.count == 0 and not is_due:
            self.skip_messages(waiter.group, &answer)
            self.is_urgent |= has_hidden
            return KEPT
        if self.send_reply(&frame, &conn, view, &request, &answer) == DECLINED:
            return DECLINED
        self.send_waited(waiter, &conn)
        self.held.woken += answer.count > 0
        self.held.expired += answer.count == 0
        return SERVED

    cdef void send_waited(self, const HeldPull *waiter, const Conn *conn) noexcept:
        """Let the reply to a POP that waited leave at the end of the poll."""
        cdef Slot *slot = (<Connections>self.connections).slots[conn.slot]
        if waiter.front != NULL:
            waiter.front.finish_call(waiter.front.owner, waiter)
            return
        slot.outbox.end = conn.ready.end - slot.outbox.data
        (<Connections>self.connections).mark_dirty(conn.slot)


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
