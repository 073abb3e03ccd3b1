"""AckPath: request 200051, the ack of one popped message, without Python objects.

It serves only acks that must succeed: a handle of this broker for a checkpoint in
memory.  The reply is sent after Python was notified of checkpoints that ended.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.ack_table cimport AckMarks, AckTable
from rmq._fastpath.reactor.header_text cimport ONEWAY_FLAG, put_success, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, SERVED, Conn, Frame, NativeHandler, Text, Verdict, decline,
)

cdef enum:
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    EXTRA_INFO = 3
    OFFSET = 4
    LITE_TOPIC = 5
    HANDLE_LIMIT = 4096         # bytes
    HANDLE_NUMBERS = 4          # before the flag and the broker
    ORDERED_REVIVE_QUEUE = 999

NAMES = ("consumerGroup", "topic", "queueId", "extraInfo", "offset", "liteTopic")
VARYING = ("topic", "queueId", "extraInfo", "offset")
REASONS = ("header", "handle", "checkpoint", "too much")


@cython.final
cdef class AckPath(NativeHandler):
    """Serves request 200051 ACK_MESSAGE."""

    def __init__(self, AckTable table not None, str broker_name not None, int version):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table
        self.broker_name = broker_name.encode()
        self.broker, self.broker_size = self.broker_name, len(self.broker_name)
        self.version = version

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Clear the bit of the message and reply, unless the request is oneway."""
        cdef const Text *texts = frame.fields
        cdef Name names[4]
        cdef int64_t queue_id, offset
        cdef int32_t i
        cdef void *marks
        for i in range(EXTRA_INFO + 1):
            if texts[i].data == NULL or texts[i].escaped:
                return decline(conn, HEADER)
        if not read_integer(&texts[QUEUE_ID], 0, INT32_MAX, &queue_id):
            return decline(conn, HEADER)
        if not read_integer(&texts[OFFSET], 0, INT64_MAX, &offset):
            return decline(conn, HEADER)
        if texts[LITE_TOPIC].data != NULL:
            return decline(conn, HEADER)
        names[0].data, names[0].size = texts[TOPIC].data, texts[TOPIC].size
        names[1].data, names[1].size = texts[GROUP].data, texts[GROUP].size
        names[2].data, names[2].size = texts[QUEUE_ID].data, texts[QUEUE_ID].size
        names[3].data = texts[EXTRA_INFO].data
        names[3].size = self.read_handle(&texts[EXTRA_INFO])
        if names[3].size == 0:
            return decline(conn, HANDLE)
        marks = self.table.find_marks(names)
        if marks == NULL or (<AckMarks>marks).open == 0:
            return decline(conn, CHECKPOINT_UNKNOWN)
        i = (<AckMarks>marks).find(offset)
        if i < 0:
            return decline(conn, CHECKPOINT_UNKNOWN)
        if (<AckMarks>marks).open >> i & 1:
            if self.table.is_full():
                return decline(conn, TOO_MUCH)
            (<AckMarks>marks).clear_at(i)
            if (<AckMarks>marks).is_written or (<AckMarks>marks).open == 0:
                self.table.record_ack(marks, offset)
        if not frame.flag & ONEWAY_FLAG:
            put_success(frame, conn, self.version)
        return SERVED

    cdef int32_t read_handle(self, const Text *text) noexcept nogil:
        """Return the size of a handle's start and time; 0 if it is not plain or not of
        this broker.

        A handle is start, time, invisible time, revive queue, flag, broker, and more.
        """
        cdef const uint8_t *p = text.data
        cdef const uint8_t *end = p + text.size
        cdef const uint8_t *blank
        cdef int64_t number = 0
        cdef int32_t i, size = 0
        cdef Text part
        part.escaped = False
        if text.size > HANDLE_LIMIT:
            return 0
        for i in range(HANDLE_NUMBERS + 1):
            blank = <const uint8_t *>memchr(p, 32, end - p)
            if blank == NULL:
                return 0
            part.data, part.size = p, <int32_t>(blank - p)
            if i < HANDLE_NUMBERS and not read_integer(&part, 0, INT64_MAX, &number):
                return 0
            if i == 1:
                size = <int32_t>(blank - text.data)
            p = blank + 1
        if number == ORDERED_REVIVE_QUEUE:
            return 0
        blank = <const uint8_t *>memchr(p, 32, end - p)
        if blank == NULL:
            blank = end
        if blank - p != self.broker_size or memcmp(p, self.broker, blank - p):
            return 0
        return size

    cdef bint end_of_poll(self) noexcept nogil:
        """Report to Python the acks of this poll that it has to know."""
        self.table.report_acks()
        return True
