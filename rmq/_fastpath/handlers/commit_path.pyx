"""CommitPath: request 15, the offset of a group in a queue, without Python objects.

It serves only commits that must succeed: a whole decimal number for a queue whose
offset Python has stored before. The replies are sent after Python got the offsets of
the poll. Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT64_MAX, INT64_MIN, int32_t, int64_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.commit_table cimport CommitPair, CommitTable
from rmq._fastpath.reactor.header_text cimport ONEWAY_FLAG, put_success, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, SERVED, Conn, Frame, NativeHandler, Text, Verdict, decline,
)

cdef enum:
    GROUP = 0
    TOPIC = 1
    QUEUE_ID = 2
    OFFSET = 3

NAMES = ("consumerGroup", "topic", "queueId", "commitOffset")
VARYING = ("topic", "queueId", "commitOffset")
REASONS = ("header", "group, topic or queue", "too much")


@cython.final
cdef class CommitPath(NativeHandler):
    """Serves request 15 UPDATE_CONSUMER_OFFSET."""

    def __init__(self, CommitTable table not None, int32_t version):
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table = table
        self.version = version

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Record the offset and reply, unless the request is oneway."""
        cdef const Text *texts = frame.fields
        cdef Name names[2]
        cdef int64_t queue_id, offset
        cdef void *pair
        cdef int32_t i
        for i in range(2):
            if texts[i].data == NULL or texts[i].escaped:
                return decline(conn, HEADER)
            names[i].data, names[i].size = texts[i].data, texts[i].size
        if not read_integer(&texts[QUEUE_ID], 0, INT32_MAX, &queue_id):
            return decline(conn, HEADER)
        if not read_integer(&texts[OFFSET], INT64_MIN, INT64_MAX, &offset):
            return decline(conn, HEADER)
        pair = self.table.find(names, queue_id)
        if pair == NULL:
            return decline(conn, PAIR_UNKNOWN)
        if self.table.is_full():
            return decline(conn, TOO_MUCH)
        self.table.record_commit(
            <void *>(<CommitPair>pair).group, <void *>(<CommitPair>pair).topic,
            <int32_t>queue_id, offset,
        )
        if not frame.flag & ONEWAY_FLAG:
            put_success(frame, conn, self.version)
        return SERVED

    cdef bint end_of_poll(self) noexcept nogil:
        """Report the offsets of this poll."""
        self.table.report_commits()
        return True
