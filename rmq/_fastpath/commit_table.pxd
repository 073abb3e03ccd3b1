from libc.stdint cimport int32_t, int64_t, uint64_t

from rmq._fastpath.name_table cimport Name, NameTable

cdef enum:
    PAIR_LIMIT = 16384          # groups times topics that are known at the same time
    SLOT_COUNT = 32768          # of their table
    QUEUE_LIMIT = 1024          # queues of a topic; Python takes commits to others
    QUEUE_WORDS = 16            # of 64 queues each
    COMMIT_LIMIT = 4096         # offsets of one poll

cdef struct Commit:
    void *group                 # a str each, alive until the batch is told
    void *topic
    int32_t queue_id
    int64_t offset

cdef class CommitPair:
    cdef str group
    cdef str topic
    cdef uint64_t queues[QUEUE_WORDS]         # a bit for each with an offset

cdef class CommitTable:
    cdef object on_commits
    cdef dict pairs             # by key
    cdef NameTable names
    cdef Commit *commits
    cdef int32_t count

    cdef bint is_full(self) noexcept nogil
    cdef void *find(self, const Name *names, int64_t queue_id) noexcept nogil
    cdef void note(
        self, void *group, void *topic, int32_t queue_id, int64_t offset
    ) noexcept nogil
    cdef void tell(self) noexcept nogil
