from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from rmq._fastpath.bytes.name_table cimport NameSlot

cdef enum:
    MARK_LIMIT = 64             # maximum number of messages of a checkpoint
    FIRST_HASH = 2166136261     # start value of FNV-1a

cdef struct HeapEntry:
    int64_t key
    int64_t serial              # entries with the same key keep their order
    void *checkpoint            # the heap has a reference to the checkpoint

cdef struct CheckpointHeap:     # the first entry has the smallest key
    HeapEntry *entries
    int64_t count
    int64_t capacity
    int64_t swept               # index of the entry that `sweep_heap` examines next

cdef class PopQueue:
    cdef readonly str topic
    cdef readonly str group
    cdef readonly int32_t queue_id
    cdef public int64_t next_offset     # queue offset at which the next POP reads
    cdef readonly int64_t count         # open checkpoints
    cdef bint _is_gone
    cdef bint is_touched        # the queue is in `CheckpointTable.touched`
    cdef bytes name             # topic, group and queue id as in a request
    cdef uint32_t name_hash
    # open checkpoints by start, for the committed offset; some have ended
    cdef CheckpointHeap open
    cdef void clear(self) noexcept

cdef class Checkpoint:
    cdef readonly PopQueue queue
    cdef readonly int64_t start
    cdef readonly int64_t pop_ms
    cdef readonly int64_t invisible_ms
    cdef readonly int32_t revive_queue
    cdef readonly int32_t retries
    cdef readonly int64_t log_end       # end of the log at the POP
    # end of the checkpoint's record in the log; 0: no record
    cdef public int64_t stored_end
    cdef readonly bint suspend
    # came from a record of an earlier run or of a Java broker
    cdef readonly bint is_adopted
    cdef public bint is_written     # the log has the record of the checkpoint
    cdef readonly bint is_done
    cdef public uint64_t open       # bit i: message i is neither acked nor revived
    cdef public list acked      # offsets whose acks the log must get
    cdef readonly int32_t count
    cdef int64_t *values        # offsets of the messages
    cdef uint32_t hash  # hash of the queue's name, the start and the time of the POP
    cdef NameSlot name          # name of the queue
    cdef int64_t term  # `term` of the table when it was added; -1: acks go to Python
    cdef int set_offsets(self, const int64_t *offsets, int32_t count) except -1
    cdef int32_t find(self, int64_t offset) noexcept nogil
    cdef void clear_at(self, int32_t i) noexcept nogil


cdef int push_entry(
    CheckpointHeap *heap, int64_t key, int64_t serial, Checkpoint checkpoint
) except -1
cdef Checkpoint pop_first(CheckpointHeap *heap)
cdef bint drop_done(CheckpointHeap *heap) noexcept
cdef void sweep_heap(CheckpointHeap *heap, int64_t live, int64_t stable_end) noexcept
cdef void clear_heap(CheckpointHeap *heap) noexcept
