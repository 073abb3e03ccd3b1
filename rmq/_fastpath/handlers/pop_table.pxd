from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.handlers.checkpoint_table cimport CheckpointTable
from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPulls
from rmq._fastpath.handlers.pull_table cimport PullTable, PullView
from rmq._fastpath.log.queue_tail cimport TopicWatch
from rmq._fastpath.reactor.native cimport Frame

cdef class PopTopic:
    cdef readonly str topic
    cdef bytes topic_bytes
    cdef readonly int32_t queue_count   # number of queues that may be read
    cdef PullView pulls         # the view by which its queues are read
    # number in handles: 0 the topic, 1 and 2 its retry topics
    cdef readonly int32_t flag
    # the group's committed offsets by queue id; None: not known
    cdef public dict committed
    cdef list positions         # PopQueue by queue id; None: not popped yet
    cdef TopicWatch watch
    cdef int64_t known_queues   # `watch.new_queues` when the queues were registered

cdef class PopView:
    cdef readonly tuple key     # group, topic, type and text of the filter
    cdef readonly PopTopic own
    cdef readonly tuple retries     # PopTopic of each retry topic that exists
    cdef readonly int32_t priority  # draws below it read from the first queue on
    cdef readonly int32_t chance    # draws below it begin with a retry topic
    cdef readonly int32_t priority_chance   # the same limit for draws below `priority`
    # True: records are sent with the name of the retry topic
    cdef readonly bint shows_retry_topic
    cdef bytes name
    cdef HeldGroup *waiting     # its notifications that wait; NULL: none ever did
    # its POPs of any queue that wait; those of one queue are in `own.pulls.queues`
    cdef HeldGroup *popping
    cdef int32_t queue_groups   # number of queues with such a group
    cdef HeldGroup *group_of(self, int64_t queue_id) noexcept
    cdef void wake_waiting(self) noexcept

cdef class PopTable:
    cdef PullTable pulls
    cdef CheckpointTable checkpoints
    cdef object draw            # returns a number from 0 to 1
    cdef object on_remaining
    cdef readonly HeldPulls held        # POPs that wait, of all views
    cdef readonly HeldPulls notices     # notifications that wait, of all views
    cdef bytes broker_name      # name of the broker in handles
    cdef int32_t revive_queues
    cdef int64_t pops  # number of POPs so far; each POP gets the next revive queue
    cdef int64_t invisible_limit_ms
    # number of messages that no `take_served` has returned
    cdef public int64_t uncounted
    cdef public bint is_reversed    # queues are read from the last one on
    cdef int32_t version
    cdef dict views             # views by name
    cdef NameTable names
    cdef int32_t drawn          # a draw that is not used yet; -1: there is no draw
    cdef void count_reads(
        self, int64_t queues, int64_t messages, int64_t missed
    ) noexcept nogil
    cpdef int draw_start(self) except -1
    cpdef int32_t next_revive_queue(self) noexcept
    cpdef void count_pop(self) noexcept
    cdef int64_t time_left(self, int64_t poll_ms, int64_t born_ms) except -1
    cdef void *find_view(self, const Frame *frame) noexcept nogil
