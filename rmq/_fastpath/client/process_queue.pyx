"""ProcessQueue: the fetched messages of a queue, and how far they are consumed.

Java's class has the same name. The offset to commit is the offset of the first pending
message: fetched, and not acknowledged. Without one it is the next offset to fetch, so
that filtered messages count as consumed.

Invariants: the offset to commit never decreases, except by `reset`. `count` and `bytes`
cover the pending messages.
"""

cimport cython
from libc.stdint cimport int64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

from rmq._fastpath.client.messages cimport ReceivedMessage

cdef enum:
    FIRST_ROOM = 64

cdef struct Slot:
    int64_t offset
    bint is_acked

MAX_SPAN = 2_000
"""Maximum distance between the offsets of the first and the last pending message.

After a crash all messages within this distance could be delivered again. Known in Java
as `consumeConcurrentlyMaxSpan`.
"""


@cython.final
cdef class ProcessQueue:
    """One queue; offsets come in ascending order. Known in Java by the same name."""

    cdef readonly int64_t next_offset
    cdef readonly int64_t bytes
    cdef readonly Py_ssize_t count
    cdef Slot *slots          # `used` from `first` on, of `room`
    cdef Py_ssize_t first
    cdef Py_ssize_t used
    cdef Py_ssize_t room

    def __init__(self, int64_t next_offset):
        self.reset(next_offset)

    def __dealloc__(self):
        free(self.slots)

    def add(self, messages not None, int64_t next_offset):
        """Add fetched messages; `next_offset` is where the next pull begins."""
        cdef ReceivedMessage message
        self._reserve(len(messages))
        for each in messages:
            if type(each) is ReceivedMessage:
                message = each
                self._append(message.queue_offset, message.size)
            else:
                self._append(each.queue_offset, each.size)
        self.next_offset = max(self.next_offset, next_offset)

    cdef int _reserve(self, Py_ssize_t count) except -1:
        cdef Slot *slots
        cdef Py_ssize_t wanted = self.used + count, room = max(self.room, FIRST_ROOM)
        if self.first + wanted <= self.room:
            return 0
        if self.first and wanted <= self.room // 2:
            memmove(self.slots, self.slots + self.first, self.used * sizeof(Slot))
            self.first = 0
            return 0
        while room < self.first + wanted:
            room *= 2
        slots = <Slot *>realloc(self.slots, room * sizeof(Slot))
        if slots == NULL:
            raise MemoryError
        self.slots, self.room = slots, room
        return 0

    cdef void _append(self, int64_t offset, int64_t size) noexcept:
        cdef Slot *slot = &self.slots[self.first + self.used]
        slot.offset, slot.is_acked = offset, False
        self.used += 1
        self.count += 1
        self.bytes += size

    def ack(self, message not None):
        """Record that a message is consumed; False if it is not pending."""
        return self._ack(message.queue_offset, message.size)

    cdef bint _ack(self, int64_t offset, int64_t size) noexcept:
        cdef Slot *slot = self._find(offset)
        if slot == NULL or slot.is_acked:
            return False
        slot.is_acked = True
        while self.used and self.slots[self.first].is_acked:
            self.first += 1
            self.used -= 1
        if self.used == 0:
            self.first = 0
        self.count -= 1
        self.bytes -= size
        return True

    cdef Slot *_find(self, int64_t offset) noexcept:
        """Return the slot of a message; it is nearly always the first one."""
        cdef Py_ssize_t low = self.first, high = self.first + self.used, middle
        if self.used and self.slots[low].offset == offset:
            return &self.slots[low]
        while low < high:
            middle = (low + high) // 2
            if self.slots[middle].offset < offset:
                low = middle + 1
            else:
                high = middle
        if low < self.first + self.used and self.slots[low].offset == offset:
            return &self.slots[low]
        return NULL

    @property
    def commit_offset(self):
        """The offset to commit: the offset of the first pending message."""
        return self.slots[self.first].offset if self.used else self.next_offset

    @property
    def last_offset(self):
        """The offset of the last pending message; IndexError without one."""
        if self.used == 0:
            raise IndexError("the queue has no pending message")
        return self.slots[self.first + self.used - 1].offset

    @property
    def is_far_ahead(self):
        """Whether the pending messages span over MAX_SPAN offsets."""
        cdef Py_ssize_t last = self.first + self.used - 1
        if self.used == 0:
            return False
        return self.slots[last].offset - self.slots[self.first].offset > MAX_SPAN

    def reset(self, int64_t offset):
        """Drop all messages, and continue at an offset."""
        self.first = self.used = 0
        self.count = self.bytes = 0
        self.next_offset = offset


cdef class FetchBuffer:
    """Fetched messages of all queues that are not acknowledged; the base of `Puller`.

    `ready` has messages that the program has not received yet, `blocked` has queues
    that wait for room.
    """

    cdef public int64_t count
    cdef public int64_t bytes
    cdef public object ready
    cdef public set blocked


cdef class Lease:
    """The base of `AssignedQueue`: a queue is the lease of its messages."""

    cdef public bint is_revoked
    cdef public FetchBuffer buffer
    cdef public ProcessQueue state

    def ack(self, ReceivedMessage message not None):
        """Mark a message as consumed; False if the queue belongs to another consumer
        now.
        """
        return self._ack(message)

    cdef bint _ack(self, ReceivedMessage message) except -1:
        cdef FetchBuffer buffer = self.buffer
        if self.is_revoked:
            return False
        if not self.state._ack(message.queue_offset, message.size):
            return False
        buffer.count -= 1
        buffer.bytes -= message.size
        if buffer.blocked:
            buffer.on_acked(self)
        return True


@cython.final
cdef class MessageIterator:
    """The iterator of `async for`; each step acknowledges the previous message.

    `last` is the message or list that the program is processing, or None. While
    `is_plain` is set, the iterator returns a ready message itself. Otherwise it awaits
    the consumer.
    """

    cdef public bint is_plain
    cdef public object last
    cdef object consumer
    cdef FetchBuffer fetched

    def __init__(self, consumer, FetchBuffer fetched not None):
        self.consumer, self.fetched = consumer, fetched

    def __aiter__(self):
        return self

    async def __anext__(self):
        """Return the next message."""
        last = self.last
        if last is not None:
            self._ack_last(last)
        message = self._ready() if self.is_plain else None
        if message is None:
            message = await self.consumer.next_message()
            if message is None:
                raise StopAsyncIteration
        self.last = message
        return message

    cdef int _ack_last(self, last) except -1:
        if self.is_plain and type(last) is ReceivedMessage:
            self.last = None
            lease = (<ReceivedMessage>last).lease
            if isinstance(lease, Lease):
                (<Lease>lease)._ack(last)
            else:
                lease.ack(last)
        else:
            self.consumer.ack_last()
        return 0

    cdef ReceivedMessage _ready(self):
        cdef ReceivedMessage message
        while self.fetched.ready:
            message = self.fetched.ready.popleft()
            lease = message.lease
            if isinstance(lease, Lease):
                if not (<Lease>lease).is_revoked:
                    return message
            elif not lease.is_revoked:
                return message
        return None
