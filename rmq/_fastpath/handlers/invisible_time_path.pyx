"""InvisibleTimePath: request 200053, a new invisible time of one popped message.

The message moves from its checkpoint to a new one, which the reply's handle names. It
serves messages that a compiled ack would find, if their checkpoints are not written.
The header is JSON: a binary one has no room for the code 200053.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.ascii cimport is_literal, put_integer, put_literal
from rmq._fastpath.handlers.ack_path cimport (
    CHECKPOINT_UNKNOWN, HEADER, REVIVE_QUEUE, TOO_MUCH, AckPath, AckRequest,
)
from rmq._fastpath.handlers.checkpoint cimport Checkpoint
from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, ONEWAY_FLAG, end_frame, end_header, end_json, read_integer,
)
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, SERVED, Conn, Frame, NativeHandler, Text, Verdict,
    decline,
)

cdef enum:
    INVISIBLE_TIME = 6
    SUSPEND = 7

NAMES = (
    "consumerGroup", "topic", "queueId", "extraInfo", "offset", "liteTopic",
    "invisibleTime", "suspend",
)
VARYING = ("topic", "queueId", "extraInfo", "offset", "invisibleTime")
REASONS = ("header", "handle", "checkpoint", "too much")


@cython.final
cdef class InvisibleTimePath(AckPath):
    """Serves request 200053 CHANGE_MESSAGE_INVISIBLETIME."""

    def __init__(self, PopTable pops not None, str broker_name not None, int version):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.attach(pops.checkpoints, broker_name, version)
        self.pops = pops

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Move the message to a new checkpoint, and reply with its time."""
        cdef const Text *texts = frame.fields
        cdef AckRequest request
        cdef int64_t invisible_ms, pop_ms
        cdef bint suspend = False
        if frame.serialize_type != JSON_TYPE or not read_integer(
            &texts[INVISIBLE_TIME], 0, self.pops.invisible_limit_ms, &invisible_ms
        ):
            return decline(conn, HEADER)
        if texts[SUSPEND].data != NULL:
            suspend = is_literal(texts[SUSPEND].data, texts[SUSPEND].size, b"true")
            if not suspend and not is_literal(
                texts[SUSPEND].data, texts[SUSPEND].size, b"false"
            ):
                return decline(conn, HEADER)
        if self.find_message(frame, conn, &request) == DECLINED:
            return DECLINED
        if (
            (<Checkpoint>request.found).is_written
            or request.numbers[REVIVE_QUEUE] > INT32_MAX
        ):
            return decline(conn, CHECKPOINT_UNKNOWN)
        if self.table.is_full():
            return decline(conn, TOO_MUCH)
        pop_ms = self.move_message(
            request.found, request.i, invisible_ms, request.numbers[REVIVE_QUEUE],
            suspend,
        )
        if pop_ms < 0:
            return decline(conn, TOO_MUCH)
        if not frame.flag & ONEWAY_FLAG:
            _put_times(
                frame, conn, pop_ms, invisible_ms, request.numbers[REVIVE_QUEUE],
                self.version,
            )
        return SERVED

    cdef int64_t move_message(
        self, void *found, int i, int64_t invisible_ms, int64_t revive_queue,
        bint suspend,
    ) noexcept with gil:
        """Return the time of POP in the new handle; -1: the table has no room.

        A message that is not open any more does not change.
        """
        cdef CheckpointTable table = self.table
        cdef Checkpoint old = <Checkpoint>found
        cdef Checkpoint new
        cdef int64_t offset = old.values[i]
        cdef int64_t wake_ms = table.wake_ms
        cdef int64_t now_ms
        cdef int64_t pop_ms = max(<int64_t>table.clock_ms(), old.pop_ms + 1)
        if not old.open >> i & 1:
            return pop_ms
        while table.find_slot(old.queue, offset, pop_ms) != NULL:
            pop_ms += 1
        if not table.can_add(old.queue, offset, pop_ms):
            return -1
        now_ms = table.steady_ms()
        new = Checkpoint.__new__(Checkpoint)
        new.set_offsets(&offset, 1)
        new.queue, new.start, new.pop_ms = old.queue, offset, pop_ms
        new.invisible_ms, new.suspend = invisible_ms, suspend
        new.revive_queue = <int32_t>(revive_queue % self.pops.revive_queues)
        new.log_end = self.pops.pulls.end_offset()
        table.insert_new(new, now_ms)
        table.touch(old.queue)
        old.clear_at(i)
        if old.open == 0:
            table.record_ack(found, offset)
        if table.wake_ms < wake_ms:
            self.is_urgent = True
        return pop_ms


cdef void _put_times(
    const Frame *frame, Conn *conn, int64_t pop_ms, int64_t invisible_ms,
    int64_t revive_queue, int32_t version,
) noexcept nogil:
    """Write the values of the message's new handle."""
    cdef uint8_t *start = conn.ready.end
    cdef uint8_t *out = put_literal(start + 8, b'{"code":0,"extFields":{"popTime":"')
    out = put_integer(out, pop_ms)
    out = put_integer(put_literal(out, b'","invisibleTime":"'), invisible_ms)
    out = put_integer(put_literal(out, b'","reviveQid":"'), revive_queue)
    out = end_json(
        put_literal(out, b'"}'), frame, b',"remark":"not set any response code"',
        version,
    )
    end_header(start, out, JSON_TYPE)
    conn.ready.end = end_frame(start, out)
