from libc.stdint cimport int32_t, int64_t, uint64_t

from rmq._fastpath.bytes.name_table cimport Name, NameTable

cdef enum:
    PAIR_LIMIT = 65536  # pairs of group and topic that are known at the same time
    QUEUE_LIMIT = 65536         # queues of a topic; Python serves commits to others
    COMMIT_LIMIT = 2048         # maximum offsets of one poll; above it the poll ends

cdef struct Commit:
    void *group                 # each is a str, alive until the batch is reported
    void *topic
    int32_t queue_id
    int64_t offset

cdef class CommitPair:
    cdef str group
    cdef str topic
    cdef bytes key
    cdef uint64_t *queues       # a bit for each queue with an offset
    cdef int64_t queue_count    # number of queue ids that have a bit
    cdef int register_queue(self, int64_t queue_id) except -1

cdef class CommitTable:
    cdef object on_commits
    cdef dict pairs             # pairs of group and topic by key
    cdef NameTable names
    cdef int32_t commit_limit   # size of `commits`
    cdef Commit *commits
    cdef int32_t count

    cdef bint is_full(self) noexcept nogil
    cdef void *find(self, const Name *names, int64_t queue_id) noexcept nogil
    cdef void record_commit(
        self, void *group, void *topic, int32_t queue_id, int64_t offset
    ) noexcept nogil
    cdef void report_commits(self) noexcept nogil
