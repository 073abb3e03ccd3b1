"""QueueTail: the end of one queue, with the entries that are not in files yet.

Layout: `entries` has the queue's entries (layout.pxd) from `first_offset` up to
`next_offset`; earlier entries are in files. Invariants: first_offset <= flushed_offset
<= next_offset. A few flushed entries stay for readers near the end, from first_offset
on. Many entries have pages of their own, which begin with the page of the first entry:
then neither growth nor a flush copies entries. A queue with entries at or after
`flushed_offset` is listed in its `TailSet`, or being flushed. `low_offset` is the first
offset if `low_physical` >= the log's start; otherwise the owner has to search for it. A
queue with another entry format (`rmq/store/queues/batch_queue.py`) keeps its entries
itself. Then this object has only its end, first_offset = next_offset, so that compiled
readers find no entry. Crash contract: a kill loses the entries that are in memory only;
recovery restores them from the log. Belongs to the thread that owns the store.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from rmq._fastpath.bytes.endian cimport get32, get64, put32, put64
from rmq._fastpath.bytes.prefetch cimport rmq_prefetch
from rmq._fastpath.log.layout cimport QueueEntryLayout
from rmq._fastpath.log.waiters cimport wake_waiters

from weakref import WeakValueDictionary

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stddef.h>
    #include <sys/mman.h>

    /* Pages of `size` bytes with the content of the old ones; NULL without memory. */
    static void *rmq_map_pages(void *old, size_t old_size, size_t size) {
        void *p = old ? mremap(old, old_size, size, MREMAP_MAYMOVE)
                      : mmap(NULL, size, PROT_READ | PROT_WRITE,
                             MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    """
    void *rmq_map_pages(void *old, size_t old_size, size_t size) noexcept nogil
    int munmap(void *address, size_t size) noexcept nogil

cdef enum:
    ENTRY_SIZE = QueueEntryLayout.ENTRY_SIZE
    RETAINED_ENTRIES = 8        # entries kept after a flush; room of a new queue
    PAGE_SIZE = 4096
    MAPPED_SIZE = 1 << 18       # larger memory has pages of its own
    CACHE_LINE = 64

# bounds of Java's histogram of message sizes, in bytes
SIZE_BOUNDS = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)

cdef int64_t[SIZE_CLASSES - 1] _BOUNDS
for _i in range(SIZE_CLASSES - 1):
    _BOUNDS[_i] = SIZE_BOUNDS[_i]


@cython.final
cdef class TopicWatch:
    """A topic, for parts that wait for its messages or know all its queues.

    While `count` is not 0, a compiled send notifies Python at once. A compiled handler
    that stores a message wakes the `waiters`; for other messages Python does.
    """


@cython.final
cdef class TailSet:
    """State that the queues of one store share."""

    def __cinit__(self):
        self.unflushed = []
        self.uncounted = []
        self.unseen = []
        self.watches = WeakValueDictionary()

    def watch(self, str topic not None):
        """Return the watch of a topic; callers with the same topic share it."""
        found = self.watches.get(topic)
        if found is None:
            found = self.watches[topic] = TopicWatch()
        return found

    cdef int count_queue(self, str topic) except -1:
        """Count a new queue of a topic."""
        cdef TopicWatch watch = self.watches.get(topic)
        if watch is not None:
            watch.new_queues += 1
        return 0

    cdef int add(self, QueueTail queue) except -1:
        queue.is_listed = True
        self.unflushed.append(queue)
        return 0

    def take_unflushed(self, int64_t least):
        """Remove and return the queues with at least `least` unflushed entries."""
        cdef list taken = [], rest = []
        cdef QueueTail queue
        for queue in self.unflushed:
            if queue.is_deleted or queue.next_offset == queue.flushed_offset:
                queue.is_listed = False
            elif queue.next_offset - queue.flushed_offset >= least:
                queue.is_listed = False
                taken.append(queue)
            else:
                rest.append(queue)
        self.unflushed = rest
        return taken

    @property
    def uncounted_count(self):
        """Number of queues with messages that `take_counts` has not returned yet."""
        return len(self.uncounted)

    def take_uncounted(self, int64_t limit):
        """Remove and return at most `limit` queues with new messages.

        Call `take_counts` of each.
        """
        cdef list taken = _pop_last(self.uncounted, limit)
        cdef QueueTail queue
        for queue in taken:
            queue.is_uncounted = False
        return taken

    def take_unseen(self, int64_t limit):
        """Remove and return at most `limit` queues with messages since the last call.
        """
        cdef list taken = _pop_last(self.unseen, limit)
        cdef QueueTail queue
        for queue in taken:
            queue.is_unseen = False
        return taken

    @property
    def has_unflushed(self):
        """True while a queue waits for its flush."""
        return len(self.unflushed) > 0

    def relist_unflushed(self, list queues not None):
        """List queues again after their flush has failed."""
        cdef QueueTail queue
        for queue in queues:
            if not queue.is_listed:
                self.add(queue)


cdef class QueueTail:
    """The end of one queue, where entries are added."""

    def __init__(self, str topic not None, int32_t queue_id, TailSet tails=None):
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.key = (topic, queue_id)
        self.tails = TailSet() if tails is None else tails
        self.tails.count_queue(topic)
        self.end_physical = -1
        self.low_physical = INT64_MAX

    def __dealloc__(self):
        if self.is_mapped:
            munmap(self.entries - self.lead_size(), self.mapped_size(self.capacity))
        else:
            free(self.entries)

    # -- room

    cdef bint grow(self, int64_t count) noexcept nogil:
        """Make room for `count` entries after the last one; False without memory."""
        cdef int64_t wanted = self.next_offset - self.first_offset + count
        cdef void *grown
        if wanted <= self.capacity:
            return True
        wanted = max(wanted, max(2 * self.capacity, <int64_t>RETAINED_ENTRIES))
        if wanted * ENTRY_SIZE >= MAPPED_SIZE:
            return self.map_entries(wanted)
        grown = realloc(self.entries, wanted * ENTRY_SIZE)
        if grown == NULL:
            return False
        self.entries = <uint8_t *>grown
        self.capacity = wanted
        return True

    cdef int64_t lead_size(self) noexcept nogil:
        """Return the bytes before the first entry in its page."""
        return <size_t>self.entries % PAGE_SIZE

    cdef int64_t mapped_size(self, int64_t capacity) noexcept nogil:
        """Return the size of the pages for `capacity` entries."""
        cdef int64_t size = capacity * ENTRY_SIZE
        if self.is_mapped:
            size += self.lead_size()
        return (size + PAGE_SIZE - 1) // PAGE_SIZE * PAGE_SIZE

    cdef bint map_entries(self, int64_t capacity) noexcept nogil:
        """Make room for `capacity` entries in pages; False without memory."""
        cdef int64_t size = self.mapped_size(capacity)
        cdef int64_t lead = self.lead_size() if self.is_mapped else 0
        cdef uint8_t *pages
        if self.is_mapped:
            pages = <uint8_t *>rmq_map_pages(
                self.entries - lead, self.mapped_size(self.capacity), size
            )
        else:
            pages = <uint8_t *>rmq_map_pages(NULL, 0, size)
        if pages == NULL:
            return False
        if not self.is_mapped:
            if self.entries != NULL:
                memcpy(
                    pages, self.entries,
                    (self.next_offset - self.first_offset) * ENTRY_SIZE,
                )
            free(self.entries)
            self.is_mapped = True
        self.entries = pages + lead
        self.capacity = (size - lead) // ENTRY_SIZE
        return True

    cdef void drop_first(self, int64_t count) noexcept nogil:
        """Free the pages that only have the first `count` entries."""
        cdef uint8_t *start = self.entries - self.lead_size()
        cdef int64_t dropped
        self.entries += count * ENTRY_SIZE
        self.capacity -= count
        self.first_offset += count
        dropped = self.entries - self.lead_size() - start
        if dropped:
            munmap(start, dropped)

    cdef void unmap_entries(self, int64_t kept, int64_t capacity) noexcept nogil:
        """Move the last `kept` entries to memory from malloc, which has less."""
        cdef uint8_t *fewer = <uint8_t *>malloc(capacity * ENTRY_SIZE)
        if fewer == NULL:
            return
        memcpy(
            fewer,
            self.entries + (self.next_offset - kept - self.first_offset) * ENTRY_SIZE,
            kept * ENTRY_SIZE,
        )
        munmap(self.entries - self.lead_size(), self.mapped_size(self.capacity))
        self.is_mapped = False
        self.entries = fewer
        self.capacity = capacity
        self.first_offset = self.next_offset - kept

    cdef bint has_room_for(self, int64_t count) noexcept nogil:
        """True if `count` more messages can be staged: then `publish` cannot fail."""
        return not self.is_deleted and self.grow(self.staged + count)

    def reserve(self, int64_t count):
        """Make room for `count` entries, so that `publish` cannot fail."""
        if not self.grow(self.staged + count):
            raise MemoryError(f"no memory for {count} queue entries")

    # -- the end

    cdef void prefetch(self) noexcept nogil:
        """Prefetch the fields: with thousands of queues in turn they are not in the
        cache.
        """
        cdef const uint8_t *p = <const uint8_t *>&self.low_offset
        cdef const uint8_t *end = <const uint8_t *>&self.new_sizes[SIZE_CLASSES]
        while p < end:
            rmq_prefetch(p)
            p += CACHE_LINE
        rmq_prefetch(end - 1)

    cdef void prefetch_entry(self) noexcept nogil:
        """Prefetch the address of the next entry, after the fields."""
        rmq_prefetch(
            self.entries + (self.next_offset - self.first_offset) * ENTRY_SIZE
        )

    cdef int64_t stage(self) noexcept nogil:
        """Reserve the offset of a message that is published at the end of the poll."""
        self.staged += 1
        return self.next_offset + self.staged - 1

    cdef void end_staging(self) noexcept nogil:
        self.staged = 0

    cpdef int64_t publish(
        self, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """Add and count the entry of a record; return its queue offset."""
        cdef int64_t offset = self.next_offset
        cdef uint8_t *entry
        if not self.grow(1):
            raise MemoryError("no memory for a queue entry")
        entry = self.entries + (offset - self.first_offset) * ENTRY_SIZE
        put64(entry + QueueEntryLayout.ENTRY_OFFSET_AT, physical_offset)
        put32(entry + QueueEntryLayout.ENTRY_SIZE_AT, size)
        put64(entry + QueueEntryLayout.ENTRY_TAGS_AT, tags_code)
        if self.low_offset == offset:
            self.low_physical = physical_offset
        self.end_physical = physical_offset + size
        self.next_offset = offset + 1
        _count(self, size, 1)
        return offset

    def count_record(self, int32_t size, int32_t messages):
        """Count a record whose entry is in another format, see `set_ends`."""
        _count(self, size, messages)

    def set_ends(self, int64_t end, int64_t flushed, int64_t end_physical):
        """Set the end of a queue whose entries are kept in another format.

        Entries before `flushed` are in files; this object has no entries.
        """
        self.first_offset = self.next_offset = end
        self.flushed_offset = flushed
        self.end_physical = end_physical

    def truncate_to(self, int64_t end, int64_t end_physical):
        """Truncate the queue to `end`; earlier entries that are not in memory are in
        files.
        """
        if not self.first_offset <= end <= self.next_offset:
            self.first_offset = self.flushed_offset = end
        self.flushed_offset = min(self.flushed_offset, end)
        self.next_offset = end
        self.end_physical = end_physical

    def take_counts(self, int64_t[::1] sizes):
        """Return (messages, bytes) published since the last call.

        Adds the messages to `sizes` by the class of their size, see SIZE_BOUNDS.
        """
        cdef int64_t messages = 0, size = self.new_bytes
        cdef int i
        for i in range(SIZE_CLASSES):
            messages += self.new_sizes[i]
            if sizes is not None:
                sizes[i] += self.new_sizes[i]
            self.new_sizes[i] = 0
        self.new_bytes = 0
        return messages, size

    # -- entries in memory

    cdef const uint8_t *entry_at(self, int64_t offset) noexcept nogil:
        """Return the entry, which later entries follow; NULL if it is not in memory."""
        if not self.first_offset <= offset < self.next_offset:
            return NULL
        return self.entries + (offset - self.first_offset) * ENTRY_SIZE

    def entry_in_memory(self, int64_t offset):
        """Return (physical offset, size, tags code), or None if not in memory."""
        cdef const uint8_t *entry = self.entry_at(offset)
        if entry == NULL:
            return None
        return (
            <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT),
            get32(entry + QueueEntryLayout.ENTRY_SIZE_AT),
            <int64_t>get64(entry + QueueEntryLayout.ENTRY_TAGS_AT),
        )

    def entries_in_memory(self, int64_t offset, int64_t count):
        """Copy at most `count` entries; None if they are not in memory."""
        cdef const uint8_t *entry = self.entry_at(offset)
        if entry == NULL:
            return None
        count = max(<int64_t>0, min(count, self.next_offset - offset))
        return PyBytes_FromStringAndSize(<const char *>entry, count * ENTRY_SIZE)

    def unflushed_entries(self, int64_t most):
        """Copy at most `most` of the entries that are only in memory."""
        cdef const uint8_t *entry = self.entry_at(self.flushed_offset)
        cdef int64_t count = min(most, self.next_offset - self.flushed_offset)
        if entry == NULL or count <= 0:
            return b""
        return PyBytes_FromStringAndSize(<const char *>entry, count * ENTRY_SIZE)

    def mark_flushed(self, int64_t end):
        """Record that files have the entries before `end`, and free their memory."""
        cdef int64_t kept, capacity
        cdef uint8_t *fewer
        if not self.flushed_offset <= end <= self.next_offset:
            raise ValueError(f"flushed to {end} of {self.next_offset} entries")
        self.flushed_offset = end
        kept = max(self.next_offset - end, <int64_t>RETAINED_ENTRIES)
        kept = min(kept, self.next_offset - self.first_offset)
        capacity = max(kept + self.staged, <int64_t>RETAINED_ENTRIES)
        if self.is_mapped:
            if capacity * ENTRY_SIZE <= MAPPED_SIZE // 2:
                self.unmap_entries(kept, capacity)
            else:
                self.drop_first(self.next_offset - kept - self.first_offset)
            return
        if capacity > self.capacity // 2:
            return
        memmove(
            self.entries,
            self.entries
            + (self.next_offset - kept - self.first_offset) * ENTRY_SIZE,
            kept * ENTRY_SIZE,
        )
        self.first_offset = self.next_offset - kept
        fewer = <uint8_t *>realloc(self.entries, capacity * ENTRY_SIZE)
        if fewer == NULL:
            return
        self.entries = fewer
        self.capacity = capacity


cdef inline int _count(QueueTail queue, int32_t size, int32_t messages) except -1:
    """Count a record, list its queue as changed and wake its waiters."""
    cdef int i = 0
    while i < SIZE_CLASSES - 1 and size > _BOUNDS[i]:
        i += 1
    queue.new_sizes[i] += messages
    queue.new_bytes += size
    if not queue.is_listed:
        queue.tails.add(queue)
    if not queue.is_uncounted:
        queue.is_uncounted = True
        queue.tails.uncounted.append(queue)
    if not queue.is_unseen:
        queue.is_unseen = True
        queue.tails.unseen.append(queue)
    wake_waiters(queue.waiters)
    return 0


cdef list _pop_last(list queues, int64_t limit):
    """Remove and return the last `limit` items of a list."""
    cdef int64_t rest = max(<int64_t>0, len(queues) - limit)
    cdef list taken = queues[rest:]
    del queues[rest:]
    return taken
