"""AckPath: request 200051, the ack of one popped message, without Python objects.

It serves only acks that must succeed: a handle of this broker for a checkpoint in
memory. The reply is sent after checkpoints without open messages have ended. Belongs to
the thread of the reactor.
"""

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.checkpoint cimport Checkpoint
from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.reactor.header_text cimport ONEWAY_FLAG, put_success, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, SERVED, Conn, Frame, NativeHandler, Text, Verdict,
    decline,
)

cdef enum:
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    EXTRA_INFO = 3
    OFFSET = 4
    LITE_TOPIC = 5
    HANDLE_LIMIT = 4096         # bytes
    ORDERED_REVIVE_QUEUE = 999

NAMES = ("consumerGroup", "topic", "queueId", "extraInfo", "offset", "liteTopic")
VARYING = ("topic", "queueId", "extraInfo", "offset")
REASONS = ("header", "handle", "checkpoint", "too much")


cdef class AckPath(NativeHandler):
    """Serves request 200051 ACK_MESSAGE."""

    def __init__(
        self, CheckpointTable table not None, str broker_name not None,
        int version,
    ):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.attach(table, broker_name, version)

    cdef int attach(
        self, CheckpointTable table, str broker_name, int version
    ) except -1:
        self.table = table
        self.broker_name = broker_name.encode()
        self.broker, self.broker_size = self.broker_name, len(self.broker_name)
        self.version = version
        return 0

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Clear the bit of the message and reply, unless the request is oneway."""
        cdef AckRequest request
        if self.find_message(frame, conn, &request) == DECLINED:
            return DECLINED
        if (<Checkpoint>request.found).open >> request.i & 1:
            if self.table.is_full():
                return decline(conn, TOO_MUCH)
            (<Checkpoint>request.found).clear_at(request.i)
            if (
                (<Checkpoint>request.found).is_written
                or (<Checkpoint>request.found).open == 0
            ):
                self.table.record_ack(request.found, request.offset)
        if not frame.flag & ONEWAY_FLAG:
            put_success(frame, conn, self.version)
        return SERVED

    cdef Verdict find_message(
        self, const Frame *frame, Conn *conn, AckRequest *request
    ) noexcept nogil:
        """Find the message of a handle in an open checkpoint of this broker."""
        cdef const Text *texts = frame.fields
        cdef Name names[3]
        cdef int64_t queue_id
        cdef int32_t i
        for i in range(EXTRA_INFO + 1):
            if texts[i].data == NULL or texts[i].escaped:
                return decline(conn, HEADER)
        if not read_integer(&texts[QUEUE_ID], 0, INT32_MAX, &queue_id):
            return decline(conn, HEADER)
        if not read_integer(&texts[OFFSET], 0, INT64_MAX, &request.offset):
            return decline(conn, HEADER)
        if texts[LITE_TOPIC].data != NULL:
            return decline(conn, HEADER)
        names[0].data, names[0].size = texts[TOPIC].data, texts[TOPIC].size
        names[1].data, names[1].size = texts[GROUP].data, texts[GROUP].size
        names[2].data, names[2].size = texts[QUEUE_ID].data, texts[QUEUE_ID].size
        if not self.read_handle(&texts[EXTRA_INFO], request.numbers):
            return decline(conn, HANDLE)
        request.found = self.table.find_named(
            names, request.numbers[START], request.numbers[POP_TIME]
        )
        if request.found == NULL or (<Checkpoint>request.found).open == 0:
            return decline(conn, CHECKPOINT_UNKNOWN)
        request.i = (<Checkpoint>request.found).find(request.offset)
        if request.i < 0:
            return decline(conn, CHECKPOINT_UNKNOWN)
        return SERVED

    cdef bint read_handle(self, const Text *text, int64_t *numbers) noexcept nogil:
        """Read the numbers of a handle; False if it is not plain or not of this broker.

        A handle is start, time, invisible time, revive queue, flag, broker, and more.
        """
        cdef const uint8_t *p = text.data
        cdef const uint8_t *end = p + text.size
        cdef const uint8_t *blank
        cdef int32_t i
        cdef Text part
        part.escaped = False
        if text.size > HANDLE_LIMIT:
            return False
        for i in range(HANDLE_NUMBERS + 1):
            blank = <const uint8_t *>memchr(p, 32, end - p)
            if blank == NULL:
                return False
            part.data, part.size = p, <int32_t>(blank - p)
            if i < HANDLE_NUMBERS and not read_integer(
                &part, 0, INT64_MAX, &numbers[i]
            ):
                return False
            p = blank + 1
        if numbers[REVIVE_QUEUE] == ORDERED_REVIVE_QUEUE:
            return False
        blank = <const uint8_t *>memchr(p, 32, end - p)
        if blank == NULL:
            blank = end
        return blank - p == self.broker_size and not memcmp(p, self.broker, blank - p)

    cdef bint end_of_poll(self) noexcept nogil:
        """Report the acks of this poll that change more than a bit."""
        self.table.report()
        return True
