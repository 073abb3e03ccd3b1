from libc.stdint cimport int32_t, int64_t, uint64_t

from rmq._fastpath.bytes.name_table cimport Name, NameTable
from rmq._fastpath.log.queue_tail cimport TailSet

cdef enum:
    MARK_LIMIT = 64             # messages of a checkpoint
    BATCH_LIMIT = 2048          # acks of one poll that are reported to Python

cdef struct Ack:
    void *marks                 # AckMarks, alive until the batch is reported
    int64_t offset

cdef class AckMarks:
    cdef int64_t *values
    cdef readonly int32_t count
    cdef public uint64_t open   # bit i: message i is neither acked nor revived
    cdef public bint is_written  # the log has the checkpoint, and must get its acks
    cdef tuple key              # in Python's table
    cdef bytes name             # in an AckTable; None: in no table
    cdef int32_t find(self, int64_t offset) noexcept nogil
    cdef void clear_at(self, int32_t i) noexcept nogil

cdef class AckTable:
    cdef TailSet tails
    cdef int64_t log_start      # as it was when the checkpoints were added
    cdef object on_acks
    cdef dict marks_by_name     # by name
    cdef NameTable names
    cdef int32_t batch_limit    # size of `acks`
    cdef Ack *acks
    cdef int32_t count
    cdef void *find_marks(self, const Name *names) noexcept nogil
    cdef bint is_full(self) noexcept nogil
    cdef void record_ack(self, void *marks, int64_t offset) noexcept nogil
    cdef void report_acks(self) noexcept nogil
