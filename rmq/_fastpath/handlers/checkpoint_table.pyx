"""CheckpointTable: the messages that groups have popped and not acked.

A checkpoint has the messages of one POP of a queue, with a bit for each open one.
Compiled POPs add checkpoints and compiled acks clear bits without Python. Python writes
and revives checkpoints, and commits offsets. Acks that end a checkpoint, or that the
log must get, are collected as a batch. At the end of the poll, before any reply is
sent, Python gets the batch. Compiled acks find a checkpoint if its topic and queue
existed when it was added. Its offsets are valid until `log_start` moves. Then a new
`term` begins: Python serves acks of earlier checkpoints, and compares their offsets.
Belongs to the thread of the reactor.
"""

cimport cython
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from rmq._fastpath.bytes.name_table cimport NAME_END, Name, hash_bytes, is_key
from rmq._fastpath.handlers.checkpoint cimport (
    FIRST_HASH, Checkpoint, CheckpointHeap, PopQueue, clear_heap, drop_done, pop_first,
    push_entry, sweep_heap,
)
from rmq._fastpath.log.queue_tail cimport TailSet

cdef enum:
    FIRST_SLOTS = 64


cdef uint32_t _hash_key(uint32_t hashed, int64_t start, int64_t pop_ms) noexcept nogil:
    """Return the hash of a queue's name, start and time of a POP."""
    cdef uint64_t value = hashed ^ <uint64_t>start
    value *= <uint64_t>0x9E3779B97F4A7C15U
    value = (value ^ value >> 32 ^ <uint64_t>pop_ms) * <uint64_t>0x9E3779B97F4A7C15U
    return <uint32_t>(value >> 32)


@cython.final
@cython.no_gc_clear
cdef class CheckpointTable:
    """The checkpoints of all groups that are in memory."""

    def __cinit__(
        self, TailSet tails not None, *, on_acks not None, on_touched not None,
        on_wake not None, clock_ms not None, steady_ms not None,
        int32_t batch_limit=BATCH_LIMIT,
    ):
        """`on_acks` gets [(checkpoint, offset)] of acks of written checkpoints.

        Their bits are cleared by then. It gets at most `batch_limit` per poll; Python
        serves further acks. `on_touched` gets the queues whose committed offset may
        have changed. `on_wake(at_ms)` requests that Python calls `take_due` and
        `take_young` at this time of the clock `steady_ms`.
        """
        if batch_limit < 1:
            raise ValueError(f"batch_limit is {batch_limit}")
        self.tails = tails
        self.batch_limit = batch_limit
        self.on_acks, self.on_touched, self.on_wake = on_acks, on_touched, on_wake
        self.clock_ms, self.steady_ms = clock_ms, steady_ms
        self.limit = self.queue_limit = INT64_MAX
        self.wake_ms = INT64_MAX
        self.queues = {}
        self.touched = []
        self.acks = <Ack *>malloc(batch_limit * sizeof(Ack))
        self.slots = <CheckpointSlot *>calloc(FIRST_SLOTS, sizeof(CheckpointSlot))
        if self.acks == NULL or self.slots == NULL:
            raise MemoryError
        self.mask = FIRST_SLOTS - 1

    def __dealloc__(self):
        cdef PopQueue queue
        cdef uint32_t i
        for queue in self.queues.values():
            queue.clear()
        clear_heap(&self.due)
        clear_heap(&self.young)
        for i in range(self.mask + 1):
            if self.slots[i].checkpoint != NULL:
                Py_DECREF(<Checkpoint>self.slots[i].checkpoint)
        free(self.slots)
        free(self.acks)

    @property
    def is_over_limit(self):
        """True if no more checkpoints may stay in memory."""
        return self.count >= self.limit

    # -- look-ups

    cdef void *find_slot(
        self, PopQueue queue, int64_t start, int64_t pop_ms
    ) noexcept:
        """Return a checkpoint by the names of a queue, its start and its time."""
        cdef uint32_t hashed = _hash_key(queue.name_hash, start, pop_ms)
        cdef uint32_t i = hashed & self.mask
        cdef Checkpoint found
        while self.slots[i].checkpoint != NULL:
            if self.slots[i].hash == hashed:
                found = <Checkpoint>self.slots[i].checkpoint
                if (
                    found.start == start
                    and found.pop_ms == pop_ms
                    and (found.queue is queue or found.queue.name == queue.name)
                ):
                    return self.slots[i].checkpoint
            i = (i + 1) & self.mask
        return NULL

    cdef void *find_named(
        self, const Name *names, int64_t start, int64_t pop_ms
    ) noexcept nogil:
        """Return the checkpoint of topic, group, queue id, start and time.

        NULL: Python decides.
        """
        cdef uint32_t hashed = FIRST_HASH
        cdef uint32_t i
        cdef int64_t size = 0
        cdef void *found
        if self.log_start != self.tails.log_start:
            return NULL
        for i in range(3):
            hashed = hash_bytes(hashed, names[i].data, names[i].size)
            hashed = (hashed ^ NAME_END) * 16777619
            size += names[i].size + 1
        hashed = _hash_key(hashed, start, pop_ms)
        i = hashed & self.mask
        while self.slots[i].checkpoint != NULL:
            found = self.slots[i].checkpoint
            if (
                self.slots[i].hash == hashed
                and (<Checkpoint>found).start == start
                and (<Checkpoint>found).pop_ms == pop_ms
                and (<Checkpoint>found).name.size == size
                and is_key(&(<Checkpoint>found).name, names, 3)
            ):
                return found if (<Checkpoint>found).term == self.term else NULL
            i = (i + 1) & self.mask
        return NULL

    def find(
        self, str topic not None, str group not None, int32_t queue_id, int64_t start,
        int64_t pop_ms,
    ):
        """Return the checkpoint of a queue, its start and the time of its POP; or None.
        """
        cdef PopQueue queue = PopQueue(topic, group, queue_id, 0, is_gone=True)
        cdef void *found = self.find_slot(queue, start, pop_ms)
        return None if found == NULL else <Checkpoint>found

    def all(self):
        """Return every checkpoint."""
        return [
            <Checkpoint>self.slots[i].checkpoint
            for i in range(self.mask + 1) if self.slots[i].checkpoint != NULL
        ]

    cdef bint can_add(
        self, PopQueue queue, int64_t start, int64_t pop_ms
    ) except -1:
        """True if a new checkpoint may stay in memory, and acks would find it."""
        return (
            self.is_buffered
            and self.count < self.limit
            and queue.count < self.queue_limit
            and self.find_slot(queue, start, pop_ms) == NULL
        )

    # -- checkpoints

    def add(self, Checkpoint checkpoint not None):
        """Add a checkpoint, which stays until it ends.

        It is due after the rest of its invisible time, and never later than the whole
        invisible time, because the clock may have been set.
        """
        cdef int64_t left_ms
        assert self.find_slot(
            checkpoint.queue, checkpoint.start, checkpoint.pop_ms
        ) == NULL, f"{checkpoint.queue.name} {checkpoint.start} is taken"
        left_ms = min(
            max(0, checkpoint.due_ms - self.clock_ms()),
            checkpoint.invisible_ms,
            INT64_MAX // 4,     # records of other brokers have any time
        )
        self.insert(checkpoint, self.steady_ms() + left_ms)

    cdef int insert(self, Checkpoint checkpoint, int64_t at_ms) except -1:
        """Add a checkpoint that is due at a time of the steady clock."""
        cdef PopQueue queue = checkpoint.queue
        if 5 * self.count >= 4 * <int64_t>self.mask:
            self.grow()
        checkpoint.hash = _hash_key(
            queue.name_hash, checkpoint.start, checkpoint.pop_ms
        )
        checkpoint.name.key, checkpoint.name.size = queue.name, len(queue.name)
        checkpoint.term = -1
        if self.is_buffered and not queue._is_gone:
            if self.log_start != self.tails.log_start:
                self.log_start = self.tails.log_start
                self.term += 1
            checkpoint.term = self.term
        self.place_slot(CheckpointSlot(<void *>checkpoint, checkpoint.hash))
        Py_INCREF(checkpoint)
        self.count += 1
        queue.count += 1
        self.push_due(at_ms, checkpoint)
        if not (checkpoint.is_adopted or queue._is_gone):
            self.push_open(checkpoint)
        return 0

    cdef int insert_new(self, Checkpoint checkpoint, int64_t now_ms) except -1:
        """Add a checkpoint of this moment, which `take_young` returns, too."""
        self.insert(checkpoint, now_ms + checkpoint.invisible_ms)
        return self.push_young(checkpoint, now_ms)

    cdef int push_due(self, int64_t at_ms, Checkpoint checkpoint) except -1:
        self.serial += 1
        push_entry(&self.due, at_ms, self.serial, checkpoint)
        sweep_heap(&self.due, self.count, INT64_MAX)
        self.wake_at(at_ms)
        return 0

    cdef int push_open(self, Checkpoint checkpoint) except -1:
        cdef PopQueue queue = checkpoint.queue
        self.serial += 1
        push_entry(&queue.open, checkpoint.start, self.serial, checkpoint)
        sweep_heap(&queue.open, queue.count, self.stable_end)
        return 0

    def add_young(self, Checkpoint checkpoint not None):
        """Let `take_young` return a checkpoint after `stay_ms`, unless it has ended."""
        self.push_young(checkpoint, self.steady_ms())

    cdef int push_young(self, Checkpoint checkpoint, int64_t now_ms) except -1:
        self.serial += 1
        push_entry(&self.young, now_ms + self.stay_ms, self.serial, checkpoint)
        sweep_heap(&self.young, self.count, INT64_MAX)
        self.wake_at(now_ms + self.stay_ms)
        return 0

    def hold_offset(self, Checkpoint checkpoint not None):
        """Let a checkpoint that is only in the log hold the committed offset."""
        if not checkpoint.queue._is_gone:
            self.push_open(checkpoint)

    cdef void place_slot(self, CheckpointSlot placed) noexcept nogil:
        cdef uint32_t i = placed.hash & self.mask
        while self.slots[i].checkpoint != NULL:
            i = (i + 1) & self.mask
        self.slots[i] = placed

    cdef int grow(self) except -1:
        """Double the slots without a look at the checkpoints; 100,000 take 3 ms."""
        cdef CheckpointSlot *known = self.slots
        cdef uint32_t i, size = self.mask + 1
        cdef CheckpointSlot *grown = <CheckpointSlot *>calloc(
            2 * <size_t>size, sizeof(CheckpointSlot)
        )
        if grown == NULL:
            raise MemoryError
        self.slots, self.mask = grown, 2 * size - 1
        for i in range(size):
            if known[i].checkpoint != NULL:
                self.place_slot(known[i])
        free(known)
        return 0

    def end(self, Checkpoint checkpoint not None):
        """End a checkpoint whose messages are all acked or stored again."""
        cdef uint32_t i
        cdef CheckpointSlot moved
        if checkpoint.is_done:
            return
        i = checkpoint.hash & self.mask
        while self.slots[i].checkpoint != <void *>checkpoint:
            assert self.slots[i].checkpoint != NULL, "the checkpoint was never added"
            i = (i + 1) & self.mask
        self.slots[i].checkpoint = NULL
        i = (i + 1) & self.mask
        while self.slots[i].checkpoint != NULL:
            moved = self.slots[i]
            self.slots[i].checkpoint = NULL
            self.place_slot(moved)
            i = (i + 1) & self.mask
        checkpoint.is_done = True
        checkpoint.queue.count -= 1
        self.count -= 1
        Py_DECREF(checkpoint)

    def unregister_all(self):
        """Leave acks of all checkpoints to Python."""
        self.term += 1

    # -- times

    cdef bint wake_at(self, int64_t at_ms) except -1:
        """Have Python wake up at a time; False if it wakes up before."""
        if at_ms >= self.wake_ms:
            return False
        self.wake_ms = at_ms
        self.on_wake(at_ms)
        return True

    def delay_due(self, int64_t at_ms, Checkpoint checkpoint not None):
        """Let a checkpoint be due again at a later time."""
        self.push_due(at_ms, checkpoint)

    def take_due(self, int64_t now_ms):
        """Remove and return a due checkpoint; None without one.

        Also None after some ended checkpoints: then `next_due_ms` is 0. All of them in
        one call would delay all clients.
        """
        return self.take_first(&self.due, now_ms)

    def take_young(self, int64_t now_ms):
        """Remove and return a checkpoint that has been in memory for `stay_ms`; None as
        in `take_due`.
        """
        return self.take_first(&self.young, now_ms)

    cdef Checkpoint take_first(self, CheckpointHeap *heap, int64_t now_ms):
        if not drop_done(heap):
            return None
        if not heap.count or heap.entries[0].key > now_ms:
            return None
        return pop_first(heap)

    def next_due_ms(self):
        """Return the time of the next due checkpoint; None without one, 0 while ended
        checkpoints are before it.
        """
        return self.next_ms(&self.due)

    def next_young_ms(self):
        """Return the time of the next `take_young`; None and 0 as in `next_due_ms`."""
        return self.next_ms(&self.young)

    cdef object next_ms(self, CheckpointHeap *heap):
        if not drop_done(heap):
            return 0
        return heap.entries[0].key if heap.count else None

    # -- committed offsets

    cdef int touch(self, PopQueue queue) except -1:
        """Let Python commit the offset of a queue at the end of the poll."""
        if not (queue.is_touched or queue._is_gone):
            queue.is_touched = True
            self.touched.append(queue)
            self.touched_count += 1
        return 0

    cdef int touch_if_moved(self, PopQueue queue, int64_t committed) except -1:
        """Touch a queue unless its committed offset is known to be right."""
        cdef Checkpoint first
        if queue.open.count:
            first = <Checkpoint>queue.open.entries[0].checkpoint
            if not (first.is_done or first.is_written) and first.start == committed:
                return 0
        return self.touch(queue)

    # -- acks

    cdef bint is_full(self) noexcept nogil:
        """True if the batch of this poll has no room."""
        return self.ack_count == self.batch_limit

    cdef void record_ack(self, void *checkpoint, int64_t offset) noexcept nogil:
        """Add an ack to the batch, which is not full."""
        self.acks[self.ack_count].checkpoint = checkpoint
        self.acks[self.ack_count].offset = offset
        self.ack_count += 1

    cdef void report(self) noexcept nogil:
        """Report the batch and the touched queues to Python, and clear them."""
        if self.ack_count or self.touched_count:
            with gil:
                self.report_batch()

    cdef int report_batch(self) except -1:
        cdef Checkpoint checkpoint
        cdef int32_t i
        acks = []
        for i in range(self.ack_count):
            checkpoint = <Checkpoint>self.acks[i].checkpoint
            if checkpoint.is_written:
                acks.append((checkpoint, self.acks[i].offset))
            else:
                self.touch(checkpoint.queue)
        for i in range(self.ack_count):
            checkpoint = <Checkpoint>self.acks[i].checkpoint
            if not checkpoint.is_written:
                self.end(checkpoint)
        self.ack_count = 0
        if acks:
            self.on_acks(acks)
        touched, self.touched, self.touched_count = self.touched, [], 0
        for queue in touched:
            (<PopQueue>queue).is_touched = False
        self.on_touched(touched)
        return 0
