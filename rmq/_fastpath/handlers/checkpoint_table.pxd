from libc.stdint cimport int32_t, int64_t, uint32_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.checkpoint cimport Checkpoint, CheckpointHeap, PopQueue
from rmq._fastpath.log.queue_tail cimport TailSet

cdef enum:
    BATCH_LIMIT = 2048          # maximum acks of one poll that change more than a bit

cdef struct Ack:
    void *checkpoint            # the checkpoint, alive until the batch is reported
    int64_t offset

cdef struct CheckpointSlot:
    void *checkpoint            # the slot has a reference to it; NULL: free
    uint32_t hash

cdef class CheckpointTable:
    cdef TailSet tails
    cdef object on_acks
    cdef object on_touched
    cdef object on_wake
    cdef object clock_ms
    cdef object steady_ms
    cdef public int64_t limit           # maximum number of checkpoints
    cdef public int64_t queue_limit     # maximum number of checkpoints of a queue
    cdef public int64_t stay_ms         # time that checkpoints are only in memory
    cdef public int64_t stable_end  # *stable* position of the log at the last commit
    cdef public bint is_buffered        # checkpoints and acks may stay in memory
    cdef public int64_t wake_ms  # time of the next work for Python, or a later time
    cdef readonly dict queues           # PopQueue by topic, group, queue id
    cdef int64_t log_start  # start of the log when the checkpoints of `term` were added
    cdef int64_t term
    cdef int64_t serial
    cdef CheckpointSlot *slots
    cdef uint32_t mask
    cdef readonly int64_t count
    cdef CheckpointHeap due     # checkpoints by their time on the steady clock
    cdef CheckpointHeap young   # checkpoints by the time at which they are written
    cdef list touched           # queues whose committed offset may have changed
    cdef int64_t touched_count
    cdef int32_t batch_limit
    cdef Ack *acks
    cdef int32_t ack_count
    cdef void *find_slot(
        self, PopQueue queue, int64_t start, int64_t pop_ms
    ) noexcept
    cdef void *find_named(
        self, const Name *names, int64_t start, int64_t pop_ms
    ) noexcept nogil
    cdef bint can_add(
        self, PopQueue queue, int64_t start, int64_t pop_ms
    ) except -1
    cdef int insert(self, Checkpoint checkpoint, int64_t at_ms) except -1
    cdef int insert_new(self, Checkpoint checkpoint, int64_t now_ms) except -1
    cdef int push_due(self, int64_t at_ms, Checkpoint checkpoint) except -1
    cdef int push_open(self, Checkpoint checkpoint) except -1
    cdef int push_young(self, Checkpoint checkpoint, int64_t now_ms) except -1
    cdef void place_slot(self, CheckpointSlot placed) noexcept nogil
    cdef int grow(self) except -1
    cdef Checkpoint take_first(self, CheckpointHeap *heap, int64_t now_ms)
    cdef object next_ms(self, CheckpointHeap *heap)
    cdef int report_batch(self) except -1
    cdef int touch(self, PopQueue queue) except -1
    cdef int touch_if_moved(self, PopQueue queue, int64_t committed) except -1
    cdef bint wake_at(self, int64_t at_ms) except -1
    cdef bint is_full(self) noexcept nogil
    cdef void record_ack(self, void *checkpoint, int64_t offset) noexcept nogil
    cdef void report(self) noexcept nogil
