"""PullPath: requests 11 and 361 of messages in memory, without Python objects.

It serves plain requests and declines others.  It declines a view that Python has not
registered, numbers that are not whole decimals, and a subscription newer than the known
one. It also declines an offset outside its queue, and records or entries that are not
in memory. Its replies equal the Python handler's replies byte
for byte. One difference: messages of the same poll that are not yet written are not
visible. It holds a plain pull at the end of its queue, see `held_pulls.pyx`. Belongs to
the thread of the reactor.
"""

cimport cython
from libc.stdint cimport (
    INT32_MAX, INT32_MIN, INT64_MAX, INT64_MIN, int64_t, uint8_t, uint32_t, uint64_t,
)

from rmq._fastpath.bytes.ascii cimport is_literal
from rmq._fastpath.bytes.name_table cimport Name, find_name
from rmq._fastpath.bytes.syscalls cimport monotonic_ns
from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPull, Pull
from rmq._fastpath.handlers.pull_reply cimport put_reply
from rmq._fastpath.handlers.pull_search cimport (
    HEADER, NO_PLACE, NOTHING_MATCHES, NOT_LATEST, OUTSIDE, TOO_MUCH, VIEW_UNKNOWN,
    PullReply, find_messages,
)
from rmq._fastpath.handlers.pull_table cimport PullTable, PullView, Served
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.scan cimport ScanResult
from rmq._fastpath.log.waiters cimport mark_ready
from rmq._fastpath.reactor.connections cimport Connections, Slot
from rmq._fastpath.reactor.header_text cimport ONEWAY_FLAG, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, KEPT, REPLY_ROOM, SERVED, Conn, Frame, NativeHandler,
    Text, Verdict, decline,
)

cdef enum:
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    OFFSET = 3
    MAX_MESSAGES = 4
    SYS_FLAG = 5
    COMMIT_OFFSET = 6
    SUSPEND_MS = 7
    SUBSCRIPTION = 8
    SUB_VERSION = 9
    EXPRESSION_TYPE = 10
    MAX_BYTES = 11
    SOURCE = 12
    LITE_TOPIC = 13

cdef enum:
    COMMIT_FLAG = 1
    SUSPEND_FLAG = 2
    SUBSCRIPTION_FLAG = 4
    PLAIN_FLAGS = 0x17          # commit, suspend, subscription, lite
    PULL_NOT_FOUND = 19
    TURN_NS = 500_000           # maximum time of a turn for held pulls
    BODY_LIMIT = (16 << 20) - REPLY_ROOM    # maximum size of a frame's body

NAMES = (
    "consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag",
    "commitOffset", "suspendTimeoutMillis", "subscription", "subVersion",
    "expressionType", "maxMsgBytes", "requestSource", "liteTopic",
)
VARYING = (
    "topic", "queueId", "queueOffset", "sysFlag", "commitOffset", "subVersion",
)
REASONS = (
    "header", "group or topic", "subscription not latest", "queue file",
    "offset outside", "nothing matches", "not in memory", "too much",
    "no place to wait", "nothing is left",
)


@cython.final
cdef class PullPath(NativeHandler):
    """Serves one of the pull codes."""

    def __init__(self, PullTable table not None):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table
        self.takes_turns = True

    # -- requests

    cdef bint read_numbers(self, const Frame *frame, Pull *pull) noexcept nogil:
        """Read all numbers of the header; False for unusual values."""
        cdef const Text *texts = frame.fields
        cdef int64_t value
        if not read_integer(&texts[QUEUE_ID], 0, INT32_MAX, &pull.queue_id):
            return False
        if not read_integer(&texts[OFFSET], 0, INT64_MAX, &pull.offset):
            return False
        if not read_integer(
            &texts[MAX_MESSAGES], INT32_MIN, INT32_MAX, &pull.max_messages
        ):
            return False
        if not read_integer(&texts[SYS_FLAG], 0, PLAIN_FLAGS, &pull.sys_flag):
            return False
        if pull.sys_flag & ~<int64_t>PLAIN_FLAGS:
            return False
        if not read_integer(
            &texts[COMMIT_OFFSET], INT64_MIN, INT64_MAX, &pull.commit_offset
        ):
            return False
        if not read_integer(
            &texts[SUSPEND_MS], INT64_MIN, INT64_MAX, &pull.suspend_ms
        ):
            return False
        if not read_integer(
            &texts[SUB_VERSION], INT64_MIN, INT64_MAX, &pull.sub_version
        ):
            return False
        pull.now_ms = frame.now_ms
        pull.max_bytes = 0
        if texts[MAX_BYTES].data != NULL and not read_integer(
            &texts[MAX_BYTES], INT32_MIN, INT32_MAX, &pull.max_bytes
        ):
            return False
        if texts[SOURCE].data != NULL and not read_integer(
            &texts[SOURCE], INT32_MIN, INT32_MAX, &value
        ):
            return False
        return texts[LITE_TOPIC].data == NULL or texts[LITE_TOPIC].size == 0

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Write a reply with the records that the pull finds."""
        cdef Pull pull
        cdef PullReply pulled
        cdef ScanResult found
        self.table.held.connections = conn.owner
        if frame.flag & ONEWAY_FLAG or not self.read_numbers(frame, &pull):
            return decline(conn, HEADER)
        if not self.find_view(frame, conn, &pull, &pulled):
            return DECLINED
        if not find_messages(self.table, conn, &pull, &pulled, &found):
            if conn.reason == OUTSIDE and pull.offset == pulled.high:
                return self.hold_request(frame, conn, &pull, &pulled)
            if conn.reason != NOTHING_MATCHES:
                return DECLINED
        if found.bytes > BODY_LIMIT or self.table.commits.is_full():
            return decline(conn, TOO_MUCH)
        if not conn.grow(conn, REPLY_ROOM + found.bytes):
            return decline(conn, TOO_MUCH)
        put_reply(self.table, frame, conn, &pulled, &found)
        if found.messages:
            self.count_served(
                (<Connections>conn.owner).token_of(conn.slot), &pull, &pulled, &found
            )
        else:
            self.table.missed += 1
        self.record_commit(&pull, &pulled)
        return SERVED

    cdef Verdict hold_request(
        self, const Frame *frame, Conn *conn, const Pull *pull, const PullReply *pulled
    ) noexcept nogil:
        """Hold a pull at the end of its queue until messages come."""
        if not pull.sys_flag & SUSPEND_FLAG:
            return decline(conn, OUTSIDE)
        if self.table.commits.is_full():
            return decline(conn, TOO_MUCH)
        if not self.add_to_group(
            pull, pulled, (<Connections>conn.owner).token_of(conn.slot),
            frame.opaque, frame.serialize_type, frame.start, frame.size,
        ):
            self.table.held.refused += 1
            return decline(conn, NO_PLACE)
        self.table.missed += 1
        self.record_commit(pull, pulled)
        return KEPT

    cdef bint add_to_group(
        self, const Pull *pull, const PullReply *pulled, uint64_t token, int32_t opaque,
        uint8_t serialize_type, const uint8_t *frame, int64_t size,
    ) noexcept nogil:
        """Add a pull to its group; False if there is no room."""
        cdef void *queue = (<PullView>pulled.view).queues[pull.queue_id].tail
        cdef int64_t wake_ms = self.table.held.wake_ms
        cdef HeldGroup *group = self.table.group_of(pulled.view, pull.queue_id)
        if group == NULL or not self.table.held.hold_pull(
            group, pull, token, opaque, serialize_type, frame, size
        ):
            return False
        if (<QueueTail>queue).next_offset > pulled.high:
            self.hide_group(group)
        if self.table.held.wake_ms < wake_ms:
            self.is_urgent = True
        return True

    def hold_pull(
        self,
        PullView view not None,
        uint64_t token,
        bytes frame not None,
        *,
        int32_t opaque,
        uint8_t serialize_type,
        int64_t queue_id,
        int64_t offset,
        int64_t max_messages,
        int64_t max_bytes,
        int64_t suspend_ms,
    ):
        """Hold a pull that Python has found at the end of its queue.

        False if it is no longer at the end, or if there is no room: Python holds it.
        """
        cdef void *connections = self.table.held.connections
        cdef Conn conn
        cdef Pull pull
        cdef PullReply pulled
        cdef ScanResult found
        if not 0 <= queue_id < view.queue_count or connections == NULL:
            return False
        if (<Connections>connections).find(token) == NULL:
            return False
        pull.queue_id, pull.offset = queue_id, offset
        pull.max_messages, pull.max_bytes = max_messages, max_bytes
        pull.suspend_ms = suspend_ms
        pull.sys_flag = pull.commit_offset = pull.sub_version = 0
        pull.now_ms = (<Connections>connections).now_ms
        pulled.view = <void *>view
        if find_messages(self.table, &conn, &pull, &pulled, &found):
            return False
        if conn.reason != OUTSIDE or offset != pulled.high:
            return False
        return self.add_to_group(
            &pull, &pulled, token, opaque, serialize_type, frame, len(frame)
        )

    # -- held pulls

    cdef bint take_turn(self, int64_t now_ms) noexcept nogil:
        """Reply to pulls whose messages came, and to pulls that are due."""
        cdef int64_t returned = self.table.held.returned
        cdef int64_t until_ns
        cdef HeldGroup *group
        self.table.held.expire(now_ms)
        if not self.table.held.has_work():
            return False
        until_ns = monotonic_ns() + TURN_NS
        self.table.held.recheck_hidden()
        group = self.table.held.next_ready()
        while group != NULL:
            self.serve_group(group, now_ms, until_ns)
            if monotonic_ns() >= until_ns:
                break
            group = self.table.held.next_ready()
        while self.table.held.due != NULL and monotonic_ns() < until_ns:
            self.end_pull(self.table.held.due, now_ms)
        if self.table.held.returned > returned:
            self.is_urgent = True
        return self.table.held.ready.first != NULL or self.table.held.due != NULL

    def end_all(self, int64_t now_ms):
        """Reply to every held pull and hold no more, because the broker stops."""
        self.table.held.end_all()
        while self.take_turn(now_ms):
            pass

    cdef void serve_group(
        self, HeldGroup *group, int64_t now_ms, int64_t until_ns
    ) noexcept nogil:
        """Reply to the pulls of a group, within the time of the turn.

        All have the same filter, and are in the order of their offsets: if one pull
        must wait, all later pulls must wait, too.
        """
        cdef Conn conn
        cdef PullReply pulled
        cdef ScanResult found
        cdef HeldPull *held
        while group.first != NULL:
            held = group.first
            if self.find_for_held(held, now_ms, &conn, &pulled, &found):
                self.table.held.woken += self.send_reply(held, &pulled, &found)
            elif conn.reason == NOTHING_MATCHES:
                group.tested_offset = held.pull.offset + found.examined
                if group.tested_offset < pulled.high:
                    mark_ready(&group.waiter)
                elif pulled.high < (<QueueTail>group.queue).next_offset:
                    self.hide_group(group)
                return
            elif conn.reason == OUTSIDE and held.pull.offset == pulled.high:
                if pulled.high < (<QueueTail>group.queue).next_offset:
                    self.hide_group(group)
                return
            else:
                self.table.held.return_pull(held, group.tested_offset)
            if group.first != NULL and monotonic_ns() >= until_ns:
                mark_ready(&group.waiter)
                return

    cdef void hide_group(self, HeldGroup *group) noexcept nogil:
        """Move a group to the hidden groups until its messages are durable.

        Python requests the flush: after a oneway send no reply waits for it.
        """
        self.table.held.hide_group(group)
        self.is_urgent = True

    cdef Verdict find_for_held(
        self, HeldPull *held, int64_t now_ms, Conn *conn, PullReply *pulled,
        ScanResult *found,
    ) noexcept nogil:
        """Find messages for a held pull after the tested entries."""
        held.pull.offset = max(held.pull.offset, held.group.tested_offset)
        held.pull.now_ms = now_ms
        pulled.view = held.group.view
        return find_messages(self.table, conn, &held.pull, pulled, found)

    cdef void end_pull(self, HeldPull *held, int64_t now_ms) noexcept nogil:
        """Reply to a due pull."""
        cdef Conn conn
        cdef PullReply pulled
        cdef ScanResult found
        if self.find_for_held(held, now_ms, &conn, &pulled, &found):
            self.table.held.woken += self.send_reply(held, &pulled, &found)
        elif conn.reason == OUTSIDE and held.pull.offset == pulled.high:
            pulled.code = PULL_NOT_FOUND
            pulled.json_remark = b',"remark":"OFFSET_OVERFLOW_ONE"'
            pulled.remark = b"OFFSET_OVERFLOW_ONE"
            if pulled.high == 0:
                pulled.json_remark = b',"remark":"NO_MESSAGE_IN_QUEUE"'
                pulled.remark = b"NO_MESSAGE_IN_QUEUE"
            pulled.next_offset = pulled.high
            found.messages = found.bytes = 0
            found.run_count = 0
            self.table.held.expired += self.send_reply(held, &pulled, &found)
        else:
            self.table.held.return_pull(held, held.group.tested_offset)

    cdef bint send_reply(
        self, HeldPull *held, const PullReply *pulled, const ScanResult *found
    ) noexcept nogil:
        """Reply to a held pull and remove it; False if its connection is closed."""
        cdef void *connections = self.table.held.connections
        cdef Conn conn
        cdef Frame frame
        cdef uint32_t index = <uint32_t>held.token
        cdef Slot *slot = (<Connections>connections).find(held.token)
        if found.bytes > BODY_LIMIT:
            self.table.held.return_pull(held, held.group.tested_offset)
            return False
        if slot == NULL or not (<Connections>connections).reserve(
            index, REPLY_ROOM + found.bytes
        ):
            self.table.held.remove_pull(held)
            self.table.held.dropped += 1
            return False
        frame.opaque = held.opaque
        frame.serialize_type = held.serialize_type
        conn.ready.end = slot.outbox.data + slot.outbox.end
        put_reply(self.table, &frame, &conn, pulled, found)
        slot.outbox.end = conn.ready.end - slot.outbox.data
        (<Connections>connections).mark_dirty(index)
        if found.messages:
            self.count_served(held.token, &held.pull, pulled, found)
        self.table.held.remove_pull(held)
        return True

    # -- views and counters

    cdef Verdict find_view(
        self, const Frame *frame, Conn *conn, const Pull *pull, PullReply *pulled
    ) noexcept nogil:
        """Find the view of the request."""
        cdef const Text *texts = frame.fields
        cdef Name names[4]
        cdef int32_t count = 2
        if texts[GROUP].data == NULL or texts[GROUP].escaped:
            return decline(conn, HEADER)
        if texts[TOPIC].data == NULL or texts[TOPIC].escaped:
            return decline(conn, HEADER)
        names[0].data, names[0].size = texts[GROUP].data, texts[GROUP].size
        names[1].data, names[1].size = texts[TOPIC].data, texts[TOPIC].size
        if pull.sys_flag & SUBSCRIPTION_FLAG:
            if texts[SUBSCRIPTION].escaped:
                return decline(conn, HEADER)
            names[2].data, names[2].size = b"", 0
            if texts[SUBSCRIPTION].data != NULL:
                names[2].data = texts[SUBSCRIPTION].data
                names[2].size = texts[SUBSCRIPTION].size
            count = 3
            names[3].data = texts[EXPRESSION_TYPE].data
            names[3].size = texts[EXPRESSION_TYPE].size
            if names[3].size and is_literal(names[3].data, names[3].size, b"SQL92"):
                count = 4
            elif names[3].size and not is_literal(
                names[3].data, names[3].size, b"TAG"
            ):
                return decline(conn, HEADER)
        pulled.view = find_name(&self.table.names, names, count)
        if pulled.view == NULL or (
            pull.queue_id >= (<PullView>pulled.view).queue_count
        ):
            return decline(conn, VIEW_UNKNOWN)
        if count == 2 and pull.sub_version > (<PullView>pulled.view).sub_version:
            return decline(conn, NOT_LATEST)
        return SERVED

    cdef void count_served(
        self, uint64_t token, const Pull *pull, const PullReply *pulled,
        const ScanResult *found,
    ) noexcept nogil:
        """Count a served pull."""
        cdef Served *served = &(<PullView>pulled.view).queues[pull.queue_id].served
        self.table.found += 1
        self.table.messages += found.messages
        served.pulls += 1
        served.messages += found.messages
        served.size += found.bytes
        served.next_offset = pulled.next_offset
        served.token = token
        (<PullView>pulled.view).has_served = True

    cdef void record_commit(
        self, const Pull *pull, const PullReply *pulled
    ) noexcept nogil:
        """Record the offset that came with the request."""
        if pull.sys_flag & COMMIT_FLAG and pull.commit_offset >= 0:
            self.table.commits.record_commit(
                <void *>(<PullView>pulled.view).group,
                <void *>(<PullView>pulled.view).topic,
                <int32_t>pull.queue_id,
                pull.commit_offset,
            )

    cdef bint end_of_poll(self) noexcept nogil:
        """Report the offsets that came in this poll."""
        self.table.commits.report_commits()
        return True
