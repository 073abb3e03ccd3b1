"""CommitTable: the offsets that groups commit in one poll, and that need no check.

Every compiled handler that receives offsets records them here, so that they keep their
order.  At the end of the poll, before any reply is sent, Python gets all of them.
Python registers a pair of group and topic queue by queue, after it has stored an
offset. Then both exist, the offset table has room, and no reset is pending. All three
stay true until `unregister_all`. Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from rmq._fastpath.bytes.name_table cimport (
    Name, clear_names, find_name, init_names, insert_name, name_key, remove_name,
    pick_victim,
)


@cython.final
cdef class CommitPair:
    """A group and a topic, with the registered queues."""

    def __init__(self, str group not None, str topic not None):
        self.group = group
        self.topic = topic
        self.key = name_key([group, topic])

    def __dealloc__(self):
        free(self.queues)

    cdef int register_queue(self, int64_t queue_id) except -1:
        """Register a queue."""
        cdef int64_t wanted
        cdef void *grown
        if queue_id >= self.queue_count:
            wanted = max((queue_id // 64 + 1) * 64, 2 * self.queue_count)
            grown = realloc(self.queues, wanted // 8)
            if grown == NULL:
                raise MemoryError
            self.queues = <uint64_t *>grown
            memset(
                <char *>grown + self.queue_count // 8, 0,
                (wanted - self.queue_count) // 8,
            )
            self.queue_count = wanted
        self.queues[queue_id // 64] |= <uint64_t>1 << (queue_id % 64)
        return 0


@cython.final
cdef class CommitTable:
    """State that the handlers of all codes with offsets share."""

    def __cinit__(self, on_commits not None, int32_t commit_limit=COMMIT_LIMIT):
        """`on_commits` gets the commits of a poll: [(group, topic, queue id, offset)].

        It gets at most `commit_limit` per poll; Python serves further commits.
        """
        if commit_limit < 1:
            raise ValueError(f"commit_limit is {commit_limit}")
        self.commit_limit = commit_limit
        self.on_commits = on_commits
        self.pairs = {}
        self.commits = <Commit *>malloc(commit_limit * sizeof(Commit))
        if self.commits == NULL:
            raise MemoryError
        init_names(&self.names)

    def __dealloc__(self):
        free(self.names.slots)
        free(self.commits)

    def __len__(self):
        return len(self.pairs)

    def register(self, str group not None, str topic not None, int32_t queue_id):
        """Serve further commits to this queue in compiled code.

        Above 65,536 pairs it evicts one; it ignores queue ids from 65,536 on.
        """
        cdef CommitPair pair, other
        if not 0 <= queue_id < QUEUE_LIMIT:
            return
        key = name_key([group, topic])
        pair = self.pairs.get(key)
        if pair is None:
            assert self.count == 0, "offsets of this poll are not reported yet"
            if len(self.pairs) >= PAIR_LIMIT:
                other = <CommitPair>pick_victim(&self.names).value
                remove_name(&self.names, other.key, <void *>other)
                del self.pairs[other.key]
            pair = CommitPair(group, topic)
            insert_name(&self.names, pair.key, <void *>pair)
            self.pairs[pair.key] = pair
        pair.register_queue(queue_id)

    def unregister_all(self):
        """Leave all commits to Python until their queues are registered again."""
        assert self.count == 0, "offsets of this poll are not reported yet"
        if self.pairs:
            clear_names(&self.names)
            self.pairs.clear()

    cdef bint is_full(self) noexcept nogil:
        return self.count == self.commit_limit

    cdef void *find(self, const Name *names, int64_t queue_id) noexcept nogil:
        """Return the pair of a group and a topic; NULL: Python serves the commit."""
        cdef void *pair
        pair = find_name(&self.names, names, 2)
        if pair == NULL or not 0 <= queue_id < (<CommitPair>pair).queue_count:
            return NULL
        if not (<CommitPair>pair).queues[queue_id // 64] >> (queue_id % 64) & 1:
            return NULL
        return pair

    cdef void record_commit(
        self, void *group, void *topic, int32_t queue_id, int64_t offset
    ) noexcept nogil:
        """Add an offset to the batch, which is not full."""
        cdef Commit *commit = &self.commits[self.count]
        commit.group = group
        commit.topic = topic
        commit.queue_id = queue_id
        commit.offset = offset
        self.count += 1

    cdef void report_commits(self) noexcept nogil:
        """Report the batch to Python and clear it."""
        cdef Commit *commit
        cdef int32_t i
        if self.count == 0:
            return
        with gil:
            commits = []
            for i in range(self.count):
                commit = &self.commits[i]
                commits.append((
                    <str>commit.group, <str>commit.topic, commit.queue_id, commit.offset
                ))
            self.count = 0
            self.on_commits(commits)
