"""NotificationPath: request 200054, whether a group has messages to pop.

It serves the groups, topics and filters of registered views. A request for all queues
of a topic that finds no message may wait here (`held_pulls.pyx`). All requests of one
view wait in one group. A compiled send to the topic marks the group ready, and so does
a POP that leaves messages. Python does it for other messages (`wake`). Then the end of
the poll replies to the request that has waited longest, if there is a message. A
request also ends at its deadline and when its connection closes. Python gets the frame
of a request back if the view is removed, or if compiled code cannot search. The header
is JSON: a binary one has no room for the code 200054.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t,
)

from rmq._fastpath.bytes.ascii cimport is_literal, put_literal
from rmq._fastpath.bytes.syscalls cimport monotonic_ns
from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPull, Pull, new_group
from rmq._fastpath.handlers.pop_search cimport (
    EMPTY, HEADER, VIEW_UNKNOWN, PopRequest, count_visible, has_messages,
)
from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.log.waiters cimport mark_ready
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
    TURN_NS = 500_000           # maximum time of a turn for requests that wait

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
        self.held = table.notices
        self.takes_turns = True

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
        """Search for messages, and reply or hold the request."""
        cdef bint is_found = False
        cdef bint is_full = False
        if has_messages(self.table, view, request, conn, &is_found) == DECLINED:
            return DECLINED
        if not is_found and request.poll_ms > 0:
            if request.queue_id >= 0:
                return decline(conn, EMPTY)
            if self.hold_request(frame, conn, <PopView>view, request):
                return KEPT
            is_full = True
            self.held.refused += 1
        _put_answer(self.table, frame, conn, is_found, is_full)
        return SERVED

    cdef bint hold_request(
        self, const Frame *frame, Conn *conn, PopView view, const PopRequest *request
    ) except *:
        """Hold a request until messages come; False if there is no room."""
        cdef int64_t wake_ms = self.held.wake_ms
        cdef Pull pull
        pull.offset = count_visible(self.table, view, NULL)
        pull.now_ms = frame.now_ms
        pull.suspend_ms = self.table.time_left(request.poll_ms, request.born_ms)
        if view.waiting == NULL:
            view.waiting = new_group(
                <void *>view, NULL, &view.own.watch.waiters, self.held
            )
        if view.waiting == NULL or not self.held.hold_pull(
            view.waiting, &pull, (<Connections>conn.owner).token_of(conn.slot),
            frame.opaque, JSON_TYPE, frame.start, frame.size,
        ):
            return False
        if self.held.wake_ms < wake_ms:
            self.is_urgent = True
        return True

    # -- requests that wait

    def count_waiting(self, PopView view not None):
        """Return the number of requests of a view that wait."""
        return 0 if view.waiting == NULL else view.waiting.count

    def wake(self, PopView view not None):
        """Let the next poll look for messages of a view."""
        if view.waiting != NULL:
            mark_ready(&view.waiting.waiter)

    def report_arrival(self, PopView view not None):
        """Wake the requests of a view, unless the arrival was seen in its poll."""
        cdef int64_t end
        if view.waiting == NULL:
            return
        end = count_visible(self.table, view, NULL)
        if end < 0 or end != view.waiting.tested_offset:
            mark_ready(&view.waiting.waiter)

    def end_all(self, int64_t now_ms):
        """Reply to every request that waits and hold no more: the broker stops."""
        self.held.end_all()
        while self.take_turn(now_ms):
            pass

    cdef bint take_turn(self, int64_t now_ms) noexcept nogil:
        """Reply to requests whose messages came, and to requests that are due."""
        self.held.expire(now_ms)
        if not self.held.has_work():
            return False
        return self.serve_waiting()

    cdef bint serve_waiting(self) noexcept with gil:
        """Reply within the time of a turn; True if another turn is needed."""
        cdef int64_t returned = self.held.returned
        cdef int64_t until_ns = monotonic_ns() + TURN_NS
        cdef HeldGroup *group = self.held.next_ready()
        while group != NULL:
            if group.first != NULL:
                self.serve_waiter(group.first, False)
            if monotonic_ns() >= until_ns:
                break
            group = self.held.next_ready()
        while self.held.due != NULL and monotonic_ns() < until_ns:
            self.serve_waiter(self.held.due, True)
        if self.held.returned > returned:
            self.is_urgent = True
        return self.held.ready.first != NULL or self.held.due != NULL

    cdef void serve_waiter(self, HeldPull *waiter, bint is_due) noexcept:
        """Reply to a request if there is a message, or if its time is over.

        Messages that are not visible yet are work for Python: it flushes them, and
        calls `wake` when they are.
        """
        cdef PopRequest request
        cdef Conn conn
        cdef bint is_found = False
        cdef bint has_hidden = False
        request.queue_id = -1
        waiter.group.tested_offset = count_visible(
            self.table, <PopView>waiter.group.view, &has_hidden
        )
        if has_messages(
            self.table, waiter.group.view, &request, &conn, &is_found
        ) == DECLINED:
            self.held.return_pull(waiter, 0)
        elif is_found or is_due:
            self.send_reply(waiter, is_found)
        elif has_hidden:
            self.is_urgent = True

    cdef void send_reply(self, HeldPull *waiter, bint is_found) noexcept:
        """Reply to a request that waits, and remove it."""
        cdef void *connections = self.connections
        cdef uint32_t index = <uint32_t>waiter.token
        cdef Slot *slot = (<Connections>connections).find(waiter.token)
        cdef Frame frame
        cdef Conn conn
        if slot == NULL or not (<Connections>connections).reserve(index, ANSWER_ROOM):
            self.held.dropped += 1
        else:
            frame.opaque, frame.serialize_type = waiter.opaque, JSON_TYPE
            conn.ready.end = slot.outbox.data + slot.outbox.end
            _put_answer(self.table, &frame, &conn, is_found, False)
            slot.outbox.end = conn.ready.end - slot.outbox.data
            (<Connections>connections).mark_dirty(index)
            self.held.woken += is_found
            self.held.expired += not is_found
        self.held.remove_pull(waiter)


cdef void _put_answer(
    PopTable table, const Frame *frame, Conn *conn, bint is_found, bint is_full
) noexcept nogil:
    """Write the reply."""
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *out = put_literal(start + 8, b'{"code":0,"extFields":{"hasMsg":"')
    if is_found:
        out = put_literal(out, b"true")
    else:
        out = put_literal(out, b"false")
    out = put_literal(out, b'","pollingFull":"')
    if is_full:
        out = put_literal(out, b"true")
    else:
        out = put_literal(out, b"false")
    out = put_literal(out, b'"}')
    out = end_json(
        out, frame, b',"remark":"not set any response code"', table.version
    )
    end_header(start, out, JSON_TYPE)
    conn.ready.end = end_frame(start, out)
