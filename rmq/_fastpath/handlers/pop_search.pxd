from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.pop_table cimport PopTable, PopView
from rmq._fastpath.reactor.native cimport Conn, Verdict

cdef enum:
    POP_LIMIT = 32  # maximum messages of one POP, and so maximum runs of records
    PART_LIMIT = 64  # maximum queues that give messages, or whose position moves

cdef enum Reason:
    HEADER = 0
    VIEW_UNKNOWN = 1
    POSITION = 2
    NOT_IN_MEMORY = 3
    ODD_RECORD = 4
    EMPTY = 5
    TOO_MUCH = 6
    REFUSED = 7

cdef struct PopRequest:
    int64_t queue_id            # negative: any queue
    int64_t max_messages
    int64_t invisible_ms
    int64_t poll_ms
    int64_t born_ms
    int64_t now_ms              # time of the poll's clock

cdef struct PopPart:            # the messages of one queue
    void *topic                 # a PopTopic
    int32_t queue_id
    int32_t count               # 0: no message matches, and the group skips them
    int32_t first               # index of the part's first message in `offsets`
    int32_t first_run           # index of the part's first run in `starts`
    int32_t run_count
    int64_t start               # queue offset at which the POP began to read
    int64_t next_offset
    # the group's committed offset before the POP; -1: it has no offset
    int64_t committed
    int64_t size                # size of the records in bytes

cdef struct PopAnswer:          # the result of the search of a POP
    int64_t remaining           # messages that the POP left in the queues
    int64_t size
    int32_t count
    int32_t run_count
    int32_t part_count
    int32_t skipped             # number of parts without a message
    int32_t missed              # number of queues without a message for the POP
    bint has_retries            # some messages are from a retry topic
    PopPart parts[PART_LIMIT]
    int64_t offsets[POP_LIMIT]
    int64_t starts[POP_LIMIT]   # offsets of runs of neighbouring records in the log
    int64_t sizes[POP_LIMIT]


cdef int64_t count_visible(PopTable table, PopView view, bint *has_hidden) noexcept
cdef Verdict has_messages(
    PopTable table, void *view, const PopRequest *request, Conn *conn, bint *is_found
) except *
cdef Verdict find_popped(
    PopTable table, void *view, const PopRequest *request, Conn *conn,
    PopAnswer *answer,
) noexcept with gil
