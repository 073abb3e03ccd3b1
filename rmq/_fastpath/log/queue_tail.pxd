from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.log.waiters cimport Waiter

# The interface of a queue's end.
#
# has_room_for that many messages can be staged: then `publish` cannot fail
#   stage, end_staging  offsets of messages that the end of the poll publishes
#   publish             makes an entry visible; the record is in the log
#   prefetch            loads what `publish` needs into the cache; prefetch_entry, too,
#                       once that is there
#   entry_at            a readable entry that is in memory, or NULL: it is in a file
#
# Entries [first_offset, next_offset) are in memory; entries from `flushed_offset` on
# are not in a file yet. A flush copies these (`unflushed`), a worker writes the copies
# to files and waits for the disk, and then `mark_flushed` drops most entries.
# Everything here belongs to the thread that owns the store; workers see copies only.

cdef enum:
    SIZE_CLASSES = 7            # classes of record sizes: one more than SIZE_BOUNDS

cdef class TopicWatch:
    # number of requests in Python that wait for messages of the topic
    cdef public int64_t count
    cdef Waiter *waiters  # compiled notifications that wait for a message of the topic
    # number of queues that the topic got since the watch exists
    cdef readonly int64_t new_queues
    cdef object __weakref__

cdef class TailSet:
    cdef public int64_t log_start       # records before it are deleted
    cdef list unflushed                 # queues with entries that are only in memory
    cdef list uncounted  # queues with new entries since the last `take_counts`
    cdef list unseen  # queues with new entries since the last `take_unseen`
    cdef object watches  # TopicWatch by topic, while another object refers to it
    cdef int count_queue(self, str topic) except -1
    cdef int add(self, QueueTail queue) except -1

cdef class QueueTail:
    cdef readonly str topic
    cdef readonly bytes topic_bytes
    cdef readonly int32_t queue_id
    cdef readonly tuple key             # topic and queue id
    cdef readonly TailSet tails
    cdef public int64_t low_offset      # known offset of the first entry
    # physical offset of the record of the first entry; -1: not known
    cdef public int64_t low_physical
    cdef public int64_t next_offset
    cdef public int64_t end_physical    # end of the last record with an entry, or -1
    cdef readonly int64_t flushed_offset    # entries before it are durable
    cdef int64_t first_offset           # offset of the first entry in memory
    cdef int64_t capacity               # number of entries for which `entries` has room
    cdef uint8_t *entries
    cdef public bint is_deleted  # the topic was deleted: no more entries are written
    cdef public bint is_watched         # Python waits for the next message of the queue
    cdef Waiter *waiters  # compiled pulls that wait for a message of the queue
    cdef bint is_mapped                 # `entries` are in pages of their own
    cdef bint is_touched
    cdef bint is_listed                 # the queue is in `tails.unflushed`
    cdef bint is_uncounted              # the queue is in `tails.uncounted`
    cdef bint is_unseen                 # the queue is in `tails.unseen`
    cdef int32_t staged                 # messages of this poll that wait to be written
    cdef int64_t new_bytes              # bytes of records since the last `take_counts`
    cdef int32_t new_sizes[SIZE_CLASSES]
    cdef void prefetch(self) noexcept nogil
    cdef void prefetch_entry(self) noexcept nogil
    cdef bint grow(self, int64_t count) noexcept nogil
    cdef int64_t lead_size(self) noexcept nogil
    cdef int64_t mapped_size(self, int64_t capacity) noexcept nogil
    cdef bint map_entries(self, int64_t capacity) noexcept nogil
    cdef void drop_first(self, int64_t count) noexcept nogil
    cdef void unmap_entries(self, int64_t kept, int64_t capacity) noexcept nogil
    cdef bint has_room_for(self, int64_t count) noexcept nogil
    cdef int64_t stage(self) noexcept nogil
    cdef void end_staging(self) noexcept nogil
    cdef const uint8_t *entry_at(self, int64_t offset) noexcept nogil
    cpdef int64_t publish(
        self, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1
