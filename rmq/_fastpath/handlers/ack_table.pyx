"""AckTable: open messages of POP checkpoints, where compiled code can acknowledge them.

`AckMarks` belong to one checkpoint. Python finds a checkpoint by its key, a compiled
ack by the same five values as texts. An ack that only clears a bit needs no Python.
Python gets acks that end a checkpoint, or whose checkpoint is in the log. It gets them
at the end of the poll, before any reply is sent.
Python adds a checkpoint when its topic and queue exist.  Its offsets are valid until
`log_start` moves.  Then all checkpoints are removed, so that Python compares offsets.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc

from rmq._fastpath.bytes.name_table cimport (
    Name, clear_names, find_name, init_names, insert_name, name_key, remove_name,
)
from rmq._fastpath.log.queue_tail cimport TailSet


@cython.final
cdef class AckMarks:
    """The messages of a checkpoint, with a bit for each open one."""

    def __cinit__(self, tuple offsets not None, uint64_t bits, *, is_written=False):
        """`bits` has a bit for each open offset; ValueError for more than 64 offsets.
        """
        cdef int32_t i
        if len(offsets) > MARK_LIMIT:
            raise ValueError(f"{len(offsets)} offsets, at most {MARK_LIMIT}")
        self.count = len(offsets)
        self.values = <int64_t *>malloc((self.count + 1) * sizeof(int64_t))
        if self.values == NULL:
            raise MemoryError
        for i in range(self.count):
            self.values[i] = offsets[i]
        self.open = bits
        self.is_written = is_written

    def __dealloc__(self):
        free(self.values)

    @property
    def offsets(self):
        """The offsets of all messages."""
        return tuple([self.values[i] for i in range(self.count)])

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


@cython.final
cdef class AckTable:
    """The checkpoints whose acks compiled code serves."""

    def __cinit__(
        self, TailSet tails not None, on_acks not None, int32_t batch_limit=BATCH_LIMIT
    ):
        """`on_acks` gets [(key, offset)] of acks that end a checkpoint or belong to a
        written checkpoint; their bits are cleared by then.

        It gets at most `batch_limit` per poll; Python serves further acks.
        """
        if batch_limit < 1:
            raise ValueError(f"batch_limit is {batch_limit}")
        self.tails = tails
        self.batch_limit = batch_limit
        self.on_acks = on_acks
        self.marks_by_name = {}
        self.acks = <Ack *>malloc(batch_limit * sizeof(Ack))
        if self.acks == NULL:
            raise MemoryError
        init_names(&self.names)

    def __dealloc__(self):
        free(self.names.slots)
        free(self.acks)

    def __len__(self):
        return len(self.marks_by_name)

    def add(self, tuple key not None, AckMarks marks not None):
        """Serve acks of a checkpoint. Its key: topic, group, queue, start, time of the
        POP.

        The key must be new in the table.
        """
        if self.log_start != self.tails.log_start:
            if self.count:
                return      # left to Python: acks of this poll are not reported yet
            self.unregister_all()
            self.log_start = self.tails.log_start
        topic, group, queue_id, start, pop_ms = key
        name = name_key([topic, group, str(queue_id), f"{start} {pop_ms}"])
        assert name not in self.marks_by_name, f"{key} is taken"
        insert_name(&self.names, name, <void *>marks)
        self.marks_by_name[name] = marks
        marks.key, marks.name = key, name

    def remove(self, AckMarks marks not None):
        """Leave acks of a checkpoint to Python; no effect if it is not in the table."""
        assert self.count == 0, "acks of this poll are not reported yet"
        if marks.name is not None:
            remove_name(&self.names, marks.name, <void *>marks)
            del self.marks_by_name[marks.name]
            marks.name = None

    def unregister_all(self):
        """Remove all checkpoints and leave their acks to Python."""
        cdef AckMarks marks
        assert self.count == 0, "acks of this poll are not reported yet"
        clear_names(&self.names)
        for marks in self.marks_by_name.values():
            marks.name = None
        self.marks_by_name.clear()

    cdef void *find_marks(self, const Name *names) noexcept nogil:
        """Return the marks of topic, group, queue, start and time; NULL: Python
        decides.
        """
        if self.log_start != self.tails.log_start:
            return NULL
        return find_name(&self.names, names, 4)

    cdef bint is_full(self) noexcept nogil:
        return self.count == self.batch_limit

    cdef void record_ack(self, void *marks, int64_t offset) noexcept nogil:
        """Add an ack to the batch, which is not full."""
        self.acks[self.count].marks = marks
        self.acks[self.count].offset = offset
        self.count += 1

    cdef void report_acks(self) noexcept nogil:
        """Report the batch to Python and clear it."""
        cdef int32_t i
        if self.count == 0:
            return
        with gil:
            acks = []
            for i in range(self.count):
                acks.append(((<AckMarks>self.acks[i].marks).key, self.acks[i].offset))
            self.count = 0
            self.on_acks(acks)
