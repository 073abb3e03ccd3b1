"""Checkpoint: the messages of one POP of a queue, with a bit for each open one.

`PopQueue` is the progress of a group in a queue. Its heap orders checkpoints by their
start, for the committed offset. A heap has the smallest key first and keeps the order
of equal keys. Ended checkpoints stay in a heap until they reach its top, or until
`sweep_heap` finds too many of them.
A checkpoint refers to its queue, and the heap of the queue to the checkpoint: `clear`
ends this cycle when the queue is gone, or with its table.
Belongs to the thread of the reactor.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from rmq._fastpath.bytes.name_table cimport hash_bytes, name_key

cdef enum:
    FIRST_ENTRIES = 4
    SLACK = 1000                # ended checkpoints that a heap may always have
    SWEPT_AT_ONCE = 8           # entries that `sweep_heap` examines in one call
    DROPPED_AT_ONCE = 1000      # ended checkpoints of one call of `drop_done`: 0.1 ms


# -- heaps

cdef int push_entry(
    CheckpointHeap *heap, int64_t key, int64_t serial, Checkpoint checkpoint
) except -1:
    """Add a checkpoint to a heap."""
    cdef int64_t i, capacity
    cdef void *grown
    if heap.count == heap.capacity:
        capacity = max(<int64_t>FIRST_ENTRIES, 2 * heap.capacity)
        grown = realloc(heap.entries, capacity * sizeof(HeapEntry))
        if grown == NULL:
            raise MemoryError
        heap.entries, heap.capacity = <HeapEntry *>grown, capacity
    i = heap.count
    heap.count += 1
    heap.entries[i].key, heap.entries[i].serial = key, serial
    heap.entries[i].checkpoint = <void *>checkpoint
    _sift_up(heap, i)
    Py_INCREF(checkpoint)
    return 0


cdef bint _is_before(const HeapEntry *one, const HeapEntry *other) noexcept nogil:
    if one.key != other.key:
        return one.key < other.key
    return one.serial < other.serial


cdef void _sift_up(CheckpointHeap *heap, int64_t i) noexcept nogil:
    """Move an entry to its place among those above it."""
    cdef HeapEntry moved = heap.entries[i]
    cdef int64_t parent
    while i > 0:
        parent = (i - 1) // 2
        if not _is_before(&moved, &heap.entries[parent]):
            break
        heap.entries[i] = heap.entries[parent]
        i = parent
    heap.entries[i] = moved


cdef void _sift_down(CheckpointHeap *heap, int64_t i) noexcept nogil:
    """Move an entry to its place among those below it."""
    cdef HeapEntry moved = heap.entries[i]
    cdef int64_t child
    while True:
        child = 2 * i + 1
        if child >= heap.count:
            break
        if child + 1 < heap.count and _is_before(
            &heap.entries[child + 1], &heap.entries[child]
        ):
            child += 1
        if not _is_before(&heap.entries[child], &moved):
            break
        heap.entries[i] = heap.entries[child]
        i = child
    heap.entries[i] = moved


cdef Checkpoint pop_first(CheckpointHeap *heap):
    """Remove and return the first checkpoint of a heap that is not empty."""
    cdef Checkpoint first = <Checkpoint>heap.entries[0].checkpoint
    _remove_entry(heap, 0)
    Py_DECREF(first)
    return first


cdef bint drop_done(CheckpointHeap *heap) noexcept:
    """Remove ended checkpoints from the top of a heap; False if others may be left."""
    cdef int _i
    for _i in range(DROPPED_AT_ONCE):
        if not heap.count or not (<Checkpoint>heap.entries[0].checkpoint).is_done:
            return True
        pop_first(heap)
    return False


cdef void sweep_heap(CheckpointHeap *heap, int64_t live, int64_t stable_end) noexcept:
    """Remove ended checkpoints from anywhere in a heap that has too many of them.

    A call examines some entries after those of the last call. Checkpoints with a record
    after `stable_end` stay.
    """
    cdef int _i
    cdef Checkpoint checkpoint
    for _i in range(SWEPT_AT_ONCE):
        if heap.count <= 2 * live + SLACK:
            return
        if heap.swept >= heap.count:
            heap.swept = 0
        checkpoint = <Checkpoint>heap.entries[heap.swept].checkpoint
        if checkpoint.is_done and checkpoint.stored_end <= stable_end:
            _remove_entry(heap, heap.swept)
            Py_DECREF(checkpoint)
        else:
            heap.swept += 1


cdef void _remove_entry(CheckpointHeap *heap, int64_t i) noexcept nogil:
    """Replace an entry by the last one, which moves to its place."""
    heap.count -= 1
    if i == heap.count:
        return
    heap.entries[i] = heap.entries[heap.count]
    _sift_up(heap, i)
    _sift_down(heap, i)


cdef void clear_heap(CheckpointHeap *heap) noexcept:
    cdef int64_t i
    cdef int64_t count = heap.count
    cdef HeapEntry *entries = heap.entries
    heap.entries, heap.count, heap.capacity = NULL, 0, 0
    for i in range(count):
        Py_DECREF(<Checkpoint>entries[i].checkpoint)
    free(entries)


# -- queues and checkpoints

@cython.final
cdef class PopQueue:
    """The progress of a group in a queue.

    `is_gone` is true after the topic or group was deleted, or after a tool has reset
    the offset.
    """

    def __cinit__(
        self, str topic not None, str group not None, int32_t queue_id,
        int64_t next_offset, *, bint is_gone=False,
    ):
        self.topic, self.group, self.queue_id = topic, group, queue_id
        self.next_offset = next_offset
        self._is_gone = is_gone
        self.name = name_key([topic, group, str(queue_id)])
        self.name_hash = hash_bytes(FIRST_HASH, self.name, len(self.name))

    def __dealloc__(self):
        self.clear()

    cdef void clear(self) noexcept:
        """Forget the checkpoints: they refer to the queue."""
        clear_heap(&self.open)

    @property
    def is_gone(self):
        """True if the committed offset of the queue does not depend on the checkpoints
        any more.
        """
        return self._is_gone

    @is_gone.setter
    def is_gone(self, bint value):
        self._is_gone = value
        if value:
            self.clear()

    def drop_ended(self, int64_t stable_end):
        """Remove checkpoints that hold the committed offset no more. True if the first
        checkpoint waits until its record is stable.
        """
        cdef Checkpoint first
        while self.open.count:
            first = <Checkpoint>self.open.entries[0].checkpoint
            if not (first.is_done or first.is_written):
                return False
            if first.stored_end > stable_end:
                return True
            pop_first(&self.open)
        return False

    @property
    def first_open(self):
        """The offset to commit: the start of the first checkpoint that counts."""
        return self.open.entries[0].key if self.open.count else self.next_offset

    def count_open(self):
        """Return the number of messages without an ack; it visits all checkpoints."""
        cdef int64_t i
        cdef int64_t total = 0
        for i in range(self.open.count):
            total += (<Checkpoint>self.open.entries[i].checkpoint).open.bit_count()
        return total


@cython.final
@cython.no_gc
@cython.freelist(256)
cdef class Checkpoint:
    """Messages of one POP of a queue."""

    def __init__(
        self, PopQueue queue not None, int64_t start, int64_t pop_ms,
        int64_t invisible_ms, int32_t revive_queue, tuple offsets not None,
        int64_t log_end, *, bits=None, bint suspend=False, int32_t retries=0,
        bint is_written=False, bint is_adopted=False,
    ):
        """`bits` has a bit for each open offset; without it all are open.

        ValueError for more than 64 offsets. `log_end` is the end of the log at the POP.
        A later record with the same queue offset belongs to a topic that was deleted
        and created again. Times prove nothing, because a clock may be set back.
        """
        cdef int64_t values[MARK_LIMIT]
        cdef int32_t i
        if len(offsets) > MARK_LIMIT:
            raise ValueError(f"{len(offsets)} offsets, at most {MARK_LIMIT}")
        for i in range(<int32_t>len(offsets)):
            values[i] = offsets[i]
        self.set_offsets(values, <int32_t>len(offsets))
        if bits is not None:
            self.open = bits
        self.queue = queue
        self.start, self.pop_ms, self.invisible_ms = start, pop_ms, invisible_ms
        self.revive_queue, self.log_end = revive_queue, log_end
        self.suspend, self.retries = suspend, retries
        self.is_written, self.is_adopted = is_written, is_adopted

    def __dealloc__(self):
        free(self.values)

    cdef int set_offsets(self, const int64_t *offsets, int32_t count) except -1:
        """Set the offsets of the messages; all are open."""
        cdef int32_t i
        free(self.values)
        self.values = <int64_t *>malloc((count + 1) * sizeof(int64_t))
        if self.values == NULL:
            raise MemoryError
        for i in range(count):
            self.values[i] = offsets[i]
        self.count = count
        self.open = ~<uint64_t>0 >> (MARK_LIMIT - count) if count else 0
        self.term = -1
        return 0

    @property
    def offsets(self):
        """The offsets of all messages."""
        return tuple([self.values[i] for i in range(self.count)])

    @property
    def due_ms(self):
        """The time at which messages without an ack become visible again."""
        return <object>self.pop_ms + <object>self.invisible_ms

    @property
    def is_acked(self):
        """True if all its messages are acked or revived."""
        return self.open == 0

    def open_offsets(self):
        """Return the offsets of the open messages."""
        return [self.values[i] for i in range(self.count) if self.open >> i & 1]

    def clear(self, int64_t offset):
        """Clear the bit of an offset; False if it is not open."""
        cdef int32_t i = self.find(offset)
        if i < 0 or not self.open >> i & 1:
            return False
        self.clear_at(i)
        return True

    cdef void clear_at(self, int32_t i) noexcept nogil:
        self.open &= ~(<uint64_t>1 << i)

    cdef int32_t find(self, int64_t offset) noexcept nogil:
        """Return the index of an offset, or -1."""
        cdef int32_t i
        for i in range(self.count):
            if self.values[i] == offset:
                return i
        return -1
