from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from rmq._fastpath.bytes.name_table cimport Name, NameSlot
from rmq._fastpath.log.queue_tail cimport TailSet

cdef enum:
    MARK_LIMIT = 64             # messages of a checkpoint
    BATCH_LIMIT = 2048          # acks of one poll that change more than a bit

cdef struct HeapEntry:
    int64_t key
    int64_t serial              # entries of one key keep their order
    void *checkpoint            # the heap has a reference

cdef struct CheckpointHeap:     # the entry with the smallest key is the first one
    HeapEntry *entries
    int64_t count
    int64_t capacity

cdef struct Ack:
    void *checkpoint            # alive until the batch is reported
    int64_t offset

cdef class PopQueue:
    cdef readonly str topic
    cdef readonly str group
    cdef readonly int32_t queue_id
    cdef public int64_t next_offset     # at which the next POP reads
    cdef readonly int64_t count         # open checkpoints
    cdef bint _is_gone
    cdef bint is_touched        # in `CheckpointTable.touched`
    cdef bytes name             # topic, group and id as they are in a request
    cdef uint32_t name_hash
    cdef CheckpointHeap open    # by start, for the committed offset; some have ended
    cdef void clear(self) noexcept

cdef class Checkpoint:
    cdef readonly PopQueue queue
    cdef readonly int64_t start
    cdef readonly int64_t pop_ms
    cdef readonly int64_t invisible_ms
    cdef readonly int32_t revive_queue
    cdef readonly int32_t retries
    cdef readonly int64_t log_end       # end of the log at the POP
    cdef public int64_t stored_end      # end of its record in the log; 0: no record
    cdef readonly bint suspend
    cdef readonly bint is_adopted   # from a record of an earlier run or of Java's
    cdef public bint is_written     # the log has its record
    cdef readonly bint is_done
    cdef public uint64_t open       # bit i: message i is neither acked nor revived
    cdef public list acked      # offsets whose acks the log must get
    cdef readonly int32_t count
    cdef int64_t *values        # offsets of the messages
    cdef uint32_t hash          # of the name of its queue, start and time of POP
    cdef NameSlot name          # of its queue
    cdef int64_t term           # of the table when it was added; -1: acks go to Python
    cdef int set_offsets(self, const int64_t *offsets, int32_t count) except -1
    cdef int32_t find(self, int64_t offset) noexcept nogil
    cdef void clear_at(self, int32_t i) noexcept nogil

cdef class CheckpointTable:
    cdef TailSet tails
    cdef object on_acks
    cdef object on_touched
    cdef object on_wake
    cdef object clock_ms
    cdef object steady_ms
    cdef public int64_t limit           # checkpoints
    cdef public int64_t queue_limit     # checkpoints of a queue
    cdef public int64_t stay_ms         # in memory before they are written
    cdef public int64_t stable_end      # of the log, as it was at the last commit
    cdef public bint is_buffered        # checkpoints and acks may stay in memory
    cdef public int64_t wake_ms         # Python has work then, or before
    cdef readonly dict queues           # PopQueue by topic, group, queue id
    cdef int64_t log_start      # as it was when the checkpoints of `term` were added
    cdef int64_t term
    cdef int64_t serial
    cdef void **slots           # each with a reference
    cdef uint32_t mask
    cdef readonly int64_t count
    cdef CheckpointHeap due     # by the time of the steady clock
    cdef CheckpointHeap young   # by the time at which they are written
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
    cdef int push_due(self, int64_t at_ms, Checkpoint checkpoint) except -1
    cdef int push_open(self, Checkpoint checkpoint) except -1
    cdef int push_young(self, Checkpoint checkpoint, int64_t now_ms) except -1
    cdef void place_slot(self, void *checkpoint) noexcept nogil
    cdef int grow(self) except -1
    cdef Checkpoint take_first(self, CheckpointHeap *heap, int64_t now_ms)
    cdef int report_batch(self) except -1
    cdef int touch(self, PopQueue queue) except -1
    cdef int touch_if_moved(self, PopQueue queue, int64_t committed) except -1
    cdef bint wake_at(self, int64_t at_ms) except -1
    cdef bint is_full(self) noexcept nogil
    cdef void record_ack(self, void *checkpoint, int64_t offset) noexcept nogil
    cdef void report(self) noexcept nogil
