from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.handlers.pop_table cimport PopTable
from rmq._fastpath.reactor.native cimport Conn, Verdict

cdef enum:
    POP_LIMIT = 32              # messages of one POP, and so runs of records
    PART_LIMIT = 64             # queues that give messages, or whose position moves

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
    int64_t queue_id            # negative: any
    int64_t max_messages
    int64_t invisible_ms
    int64_t poll_ms
    int64_t born_ms
    int64_t now_ms              # on the clock of polls

cdef struct PopPart:            # the messages of one queue
    void *topic                 # PopTopic
    int32_t queue_id
    int32_t count               # 0: no message matches, and the group skips them
    int32_t first               # index of the first one in `offsets`
    int32_t first_run           # index of its first one in `starts`
    int32_t run_count
    int64_t start               # where the POP began to read
    int64_t next_offset
    int64_t committed           # the group's offset before the POP; -1: none
    int64_t size                # bytes of the records

cdef struct PopAnswer:          # what a POP found
    int64_t remaining           # messages that it left
    int64_t size
    int32_t count
    int32_t run_count
    int32_t part_count
    int32_t skipped             # parts without a message
    int32_t missed              # queues without a message for it
    bint has_retries            # some are from a retry topic
    PopPart parts[PART_LIMIT]
    int64_t offsets[POP_LIMIT]
    int64_t starts[POP_LIMIT]   # of runs of neighbouring records in the log
    int64_t sizes[POP_LIMIT]


cdef Verdict has_messages(
    PopTable table, void *view, const PopRequest *request, Conn *conn, bint *is_found
) except *
cdef Verdict find_popped(
    PopTable table, void *view, const PopRequest *request, Conn *conn,
    PopAnswer *answer,
) noexcept with gil
