"""What is done with each message of a producer: room, the first attempt, its end.

`SendBudget` says how many messages and bytes may be under way; who waits gets room in turn.
Invariants: what is taken never exceeds the limits, except that a message larger than
all bytes passes alone; nobody overtakes a message that waits.
"""

from collections import deque
from time import monotonic_ns

cimport cython
from libc.stdint cimport int64_t

from rmq._fastpath.client.messages cimport Delivery, SendResult
from rmq._fastpath.client.packing cimport PackedMessage
from rmq.core.errors import PeerError

cdef enum:
    NANOSECONDS = 1_000_000
    ITEM_SIZE = 22              # of an item of a batch, without body and properties


@cython.final
cdef class SendBudget:
    """Counts; `take` or `wait` before, `give` after."""

    cdef readonly Py_ssize_t count
    cdef readonly int64_t bytes
    cdef Py_ssize_t max_count
    cdef int64_t max_bytes
    cdef object waiting             # waiters, their bytes and counts

    def __init__(self, Py_ssize_t max_count, int64_t max_bytes):
        self.max_count, self.max_bytes = max_count, max_bytes
        self.waiting = deque()

    def take(self, int64_t size, Py_ssize_t count=1):
        """Take room if it is there, and if nobody waits for it."""
        return self._take(size, count)

    cdef bint _take(self, int64_t size, Py_ssize_t count) except -1:
        if self.waiting or not self._has_room(size, count):
            return False
        self.count += count
        self.bytes += size
        return True

    cdef bint _has_room(self, int64_t size, Py_ssize_t count) noexcept:
        return self.count == 0 or (
            self.count + count <= self.max_count and self.bytes + size <= self.max_bytes
        )

    def wait(self, waiter not None, int64_t size, Py_ssize_t count=1):
        """Have room taken for the waiter when it is its turn."""
        self.waiting.append((waiter, size, count))

    def give(self, int64_t size, Py_ssize_t count=1):
        """Give room back; those that wait get it."""
        self._give(size, count)

    cdef int _give(self, int64_t size, Py_ssize_t count) except -1:
        self.count -= count
        self.bytes -= size
        assert self.count >= 0 <= self.bytes
        if self.waiting:
            self.serve()
        return 0

    def serve(self):
        """Let go on who has room now; also after a waiter was given up."""
        while self.waiting:
            waiter, size, count = self.waiting[0]
            if not waiter.done():
                if not self._has_room(size, count):
                    return
                self.count += count
                self.bytes += size
                waiter.set_result(None)
            self.waiting.popleft()


@cython.final
cdef class RoundRobin:
    """One queue after another, from the place `first` on, of any size.

    `following` is the place of the next one: what the choice of a changed route begins
    with, so that the change itself sends nothing to one queue twice.
    """

    cdef readonly Py_ssize_t following
    cdef Py_ssize_t count
    cdef object queues

    def __init__(self, queues not None, Py_ssize_t first):
        assert queues, "nothing to choose from"
        self.queues, self.count = queues, len(queues)
        self.following = first % self.count

    def next(self, str avoid=None):
        """Return the place of the next queue; not on the broker `avoid` if possible."""
        cdef Py_ssize_t index
        if avoid is None:
            return self._next()
        for _ in self.queues:
            index = self._next()
            if self.queues[index].broker != avoid:
                return index
        return self._next()

    cdef Py_ssize_t _next(self) noexcept:
        cdef Py_ssize_t index = self.following
        self.following = index + 1 if index + 1 < self.count else 0
        return index


cdef class DirectSends:
    """The base of `Sender`: by topic its targets, by address the open connections."""

    cdef public dict publishings
    cdef public dict connections

    def ready(self, str topic not None):
        """Return the next target and its connection if it can be sent to at once."""
        return self._ready(topic)

    cdef tuple _ready(self, str topic):
        cdef RoundRobin choice
        found = self.publishings.get(topic)
        if found is None:
            return None
        choice = found.choice
        target = found.targets[choice._next()]
        connection = self.connections.get(target.address)
        if connection is None or not connection.is_open:
            return None
        return target, connection

    def deliver(self, Delivery delivery not None, go_on, int64_t timeout_ms):
        """Send an enqueued message at once; False if that cannot be.

        After a failure `go_on` makes the other attempts.
        """
        cdef PackedMessage packed = delivery.packed
        ready = self._ready(packed.topic)
        if ready is None:
            return False
        target, connection = ready
        connection.send(
            target.single, packed.properties, packed.body,
            FirstAttempt(delivery, go_on), _steady_ms() + timeout_ms, packed.msg_ids,
            packed.sys_flag,
        )
        return True


cdef int64_t _steady_ms() except -1:
    return <int64_t>monotonic_ns() // NANOSECONDS


@cython.final
cdef class Accumulator:
    """One batch that fills, and the moment at which it leaves at the latest."""

    cdef readonly object leaves_at_ms   # None while it is empty
    cdef Py_ssize_t max_count
    cdef int64_t max_bytes
    cdef double linger_ms
    cdef list items
    cdef int64_t bytes

    def __init__(self, limits not None, double linger_ms):
        self.max_count, self.max_bytes = limits
        self.linger_ms = linger_ms
        self.items = []

    def add(self, item, int64_t size, now_ms):
        """Add a message; return the batches that leave now."""
        cdef int64_t total = self.bytes + size + ITEM_SIZE
        cdef Py_ssize_t count = len(self.items)
        cdef list leaving
        if count and total + ITEM_SIZE <= self.max_bytes and count + 1 < self.max_count:
            self.items.append(item)
            self.bytes = total
            return ()
        leaving = []
        if count and total > self.max_bytes:
            leaving.append(self.take())
        if not self.items:
            self.leaves_at_ms = now_ms() + self.linger_ms
        self.items.append(item)
        self.bytes += size + ITEM_SIZE
        if (
            self.bytes + ITEM_SIZE > self.max_bytes
            or len(self.items) == self.max_count
        ):
            leaving.append(self.take())
        return leaving

    def withdraw(self, item, int64_t size):
        """Take a message out again; False if it has left."""
        if item not in self.items:
            return False
        self.items.remove(item)
        self.bytes -= size + ITEM_SIZE
        if not self.items:
            self.leaves_at_ms = None
        return True

    def due(self, double now_ms):
        """Return the batch if its time has come."""
        if self.leaves_at_ms is None or now_ms < self.leaves_at_ms:
            return []
        return self.take()

    cpdef list take(self):
        """Return what is there, as at a flush."""
        cdef list items = self.items
        self.items = []
        self.bytes = 0
        self.leaves_at_ms = None
        return items


@cython.final
cdef class PendingDeliveries:
    """What `enqueue` has taken and what has not ended; each has its room.

    `on_failure` gets the error of each that fails, `on_idle` is called when none is
    left.
    """

    cdef readonly Py_ssize_t count
    cdef SendBudget budget
    cdef object new_waiter
    cdef object on_failure
    cdef object on_idle
    cdef object learn               # `ended`, bound once

    def __init__(self, SendBudget budget not None, new_waiter, on_failure, on_idle):
        self.budget, self.new_waiter = budget, new_waiter
        self.on_failure, self.on_idle = on_failure, on_idle
        self.learn = self.ended

    def begin(self, PackedMessage packed not None):
        """Return the delivery of a message that has its room."""
        self.count += 1
        return Delivery(packed, self.learn, self.new_waiter)

    def ended(self, Delivery delivery not None):
        """Learn that one has ended."""
        cdef PackedMessage packed = delivery.packed
        if type(delivery.outcome) is not SendResult:
            self.on_failure(delivery.outcome)
        self.settle(1, packed.size)

    cpdef settle(self, Py_ssize_t count, int64_t size):
        """Count deliveries that have ended, and give their room back."""
        self.budget._give(size, count)
        self.count -= count
        if self.count == 0:
            self.on_idle()


@cython.final
@cython.freelist(1024)
cdef class FirstAttempt:
    """The waiter of an enqueued message that was sent at once.

    It ends the delivery; after a failure `go_on` makes the other attempts.
    """

    cdef Delivery delivery
    cdef object go_on

    def __init__(self, Delivery delivery not None, go_on):
        self.delivery, self.go_on = delivery, go_on

    def done(self):
        """Never given up."""
        return False

    def set_result(self, answer):
        """Take the answer."""
        if type(answer) is SendResult:
            self.delivery._end(answer)
        else:
            self.go_on(self.delivery)

    def set_exception(self, _error):
        """Learn that there is none."""
        self.go_on(self.delivery)


@cython.final
cdef class EndCounter:
    """Counts what has ended; `first` is called for the first since the last `take`."""

    cdef Py_ssize_t count
    cdef object first

    def __init__(self, first):
        self.first = first

    cdef int _add(self) except -1:
        self.count += 1
        if self.count == 1:
            self.first()
        return 0

    def take(self):
        """Return how many have ended since the last call."""
        count = self.count
        self.count = 0
        return count


@cython.final
@cython.freelist(1024)
cdef class ThreadDelivery:
    """A message that a thread has enqueued; `await_end` waits for its end."""

    cdef object await_end
    cdef object inner               # a Delivery that has ended, or an exception
    cdef EndCounter ends

    def __init__(self, await_end, EndCounter ends not None):
        self.await_end, self.ends = await_end, ends

    def done(self):
        """Whether the broker has answered, or the message has failed for good."""
        return self.inner is not None

    def result(self, timeout_s=None):
        """Wait for the result; TimeoutError, or the failure of the message."""
        if self.inner is None and not self.await_end(self, timeout_s):
            raise TimeoutError(f"no result within {timeout_s:g} s")
        if type(self.inner) is Delivery:
            return self.inner.result()
        raise self.inner

    def end(self, inner not None):
        """Take the result, or a failure before it was sent; for the producer."""
        self.inner = inner
        self.ends._add()


async def send_packed(
    DirectSends sender not None, SendBudget budget not None,
    PackedMessage packed not None, room, int64_t timeout_ms,
):
    """Send a message to any queue; `room` waits for some if the budget has none.

    The first attempt is made here if it can be made at once, without the calls that
    look for routes and connections: it is nearly always the only one.
    """
    cdef int64_t deadline_ms
    if not budget._take(packed.size, 1):
        await room(packed.size)
    try:
        ready = sender._ready(packed.topic)
        if ready is None:
            return await sender.send(packed, timeout_ms)
        target, connection = ready
        waiter = connection.new_waiter()
        deadline_ms = _steady_ms() + timeout_ms
        number = connection.send(
            target.single, packed.properties, packed.body, waiter, deadline_ms,
            packed.msg_ids, packed.sys_flag,
        )
        try:
            answer = await waiter
        except PeerError as error:
            answer = error
        finally:
            connection.codec.cancel(number)
        if type(answer) is SendResult:
            return answer
        return await sender.go_on(packed, deadline_ms, target, answer)
    finally:
        budget._give(packed.size, 1)
