"""The compiled steps of each send: flow control, the first attempt, the end.

`SendBudget` limits the messages and bytes in flight; tasks that wait get room in their
order. Invariants: the sum in flight never exceeds the limits. Exception: a message
larger than the limit of bytes is sent alone. No message overtakes a waiting message.
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
    ITEM_SIZE = 22              # bytes of an item without body and properties


@cython.final
cdef class SendBudget:
    """A semaphore of messages and bytes: `try_acquire` or `wait`, then `release`."""

    cdef readonly Py_ssize_t count
    cdef readonly int64_t bytes
    cdef Py_ssize_t max_count
    cdef int64_t max_bytes
    cdef object waiting             # waiters, their bytes and counts

    def __init__(self, Py_ssize_t max_count, int64_t max_bytes):
        self.max_count, self.max_bytes = max_count, max_bytes
        self.waiting = deque()

    def try_acquire(self, int64_t size, Py_ssize_t count=1):
        """Acquire room; False if it is full, or if other tasks wait."""
        return self._try_acquire(size, count)

    cdef bint _try_acquire(self, int64_t size, Py_ssize_t count) except -1:
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
        """Acquire room for the waiter in its turn; then set the waiter's result."""
        self.waiting.append((waiter, size, count))

    def release(self, int64_t size, Py_ssize_t count=1):
        """Release room for the tasks that wait."""
        self._release(size, count)

    cdef int _release(self, int64_t size, Py_ssize_t count) except -1:
        self.count -= count
        self.bytes -= size
        assert self.count >= 0 <= self.bytes
        if self.waiting:
            self.serve()
        return 0

    def serve(self):
        """Wake the waiters that have room now; also after a waiter was cancelled."""
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
    """Chooses one queue after another, starting at index `first` modulo their count.

    `next_index` is the index of the next queue. After a change of the route the choice
    starts at this index, so that one queue does not get two messages in a row.
    """

    cdef readonly Py_ssize_t next_index
    cdef Py_ssize_t count
    cdef object queues

    def __init__(self, queues not None, Py_ssize_t first):
        assert queues, "nothing to choose from"
        self.queues, self.count = queues, len(queues)
        self.next_index = first % self.count

    def next(self, str avoid=None):
        """Return the index of the next queue; if possible of another broker than
        `avoid`.
        """
        cdef Py_ssize_t index
        if avoid is None:
            return self._next()
        for _ in self.queues:
            index = self._next()
            if self.queues[index].broker != avoid:
                return index
        return self._next()

    cdef Py_ssize_t _next(self) noexcept:
        cdef Py_ssize_t index = self.next_index
        self.next_index = index + 1 if index + 1 < self.count else 0
        return index


cdef class DirectSends:
    """The base of `Sender`: targets by topic, and open connections by address.

    A broker has `attempt_timeout_ms` to answer one request.
    """

    cdef public dict targets_by_topic
    cdef public dict connections
    cdef public int64_t attempt_timeout_ms

    def ready(self, str topic not None):
        """Return the next target and its open connection; None without an open
        connection.
        """
        return self._ready(topic)

    cdef tuple _ready(self, str topic):
        cdef RoundRobin choice
        found = self.targets_by_topic.get(topic)
        if found is None:
            return None
        choice = found.choice
        target = found.targets[choice._next()]
        connection = self.connections.get(target.address)
        if connection is None or not connection.is_open:
            return None
        return target, connection

    def deliver(self, Delivery delivery not None, retry, int64_t timeout_ms):
        """Send an enqueued message at once; False without an open connection.

        After a failure `retry` makes the other attempts. It gets the delivery, the
        answer or the error, the deadline, and the target of this attempt.
        """
        cdef PackedMessage packed = delivery.packed
        cdef int64_t now_ms
        ready = self._ready(packed.topic)
        if ready is None:
            return False
        target, connection = ready
        now_ms = _steady_ms()
        connection.send(
            target.single, packed.properties, packed.body,
            FirstAttempt(delivery, retry, now_ms + timeout_ms, target),
            now_ms + min(timeout_ms, self.attempt_timeout_ms), packed.msg_ids,
            packed.sys_flag,
        )
        return True


cdef int64_t _steady_ms() except -1:
    return <int64_t>monotonic_ns() // NANOSECONDS


@cython.final
cdef class Accumulator:
    """The batch that gets messages now, and the deadline at which it is sent."""

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
        """Add a message; return the batches that must be sent now."""
        cdef int64_t total = self.bytes + size + ITEM_SIZE
        cdef Py_ssize_t count = len(self.items)
        cdef list leaving
        if count and total + ITEM_SIZE <= self.max_bytes and count + 1 < self.max_count:
            self.items.append(item)
            self.bytes = total
            return ()
        leaving = []
        if count and total > self.max_bytes:
            leaving.append(self.pop())
        if not self.items:
            self.leaves_at_ms = now_ms() + self.linger_ms
        self.items.append(item)
        self.bytes += size + ITEM_SIZE
        if (
            self.bytes + ITEM_SIZE > self.max_bytes
            or len(self.items) == self.max_count
        ):
            leaving.append(self.pop())
        return leaving

    def withdraw(self, item, int64_t size):
        """Remove a message; False if its batch was sent."""
        if item not in self.items:
            return False
        self.items.remove(item)
        self.bytes -= size + ITEM_SIZE
        if not self.items:
            self.leaves_at_ms = None
        return True

    def pop_due(self, double now_ms):
        """Remove and return the batch if its time has come."""
        if self.leaves_at_ms is None or now_ms < self.leaves_at_ms:
            return []
        return self.pop()

    cpdef list pop(self):
        """Remove and return the batch, also if it is not full."""
        cdef list items = self.items
        self.items = []
        self.bytes = 0
        self.leaves_at_ms = None
        return items


@cython.final
cdef class PendingDeliveries:
    """The deliveries of `enqueue` that have not ended; each has room in the budget.

    `on_failure` gets the error of each delivery that fails. `on_idle` is called after
    the last delivery has ended.
    """

    cdef readonly Py_ssize_t count
    cdef SendBudget budget
    cdef object new_waiter
    cdef object on_failure
    cdef object on_idle
    cdef object end_callback        # `on_end`, bound once

    def __init__(self, SendBudget budget not None, new_waiter, on_failure, on_idle):
        self.budget, self.new_waiter = budget, new_waiter
        self.on_failure, self.on_idle = on_failure, on_idle
        self.end_callback = self.on_end

    def begin(self, PackedMessage packed not None):
        """Return the delivery of a message that holds its room."""
        self.count += 1
        return Delivery(packed, self.end_callback, self.new_waiter)

    def on_end(self, Delivery delivery not None):
        """Count one delivery as ended; pass its error to `on_failure`."""
        cdef PackedMessage packed = delivery.packed
        if type(delivery.outcome) is not SendResult:
            self.on_failure(delivery.outcome)
        self.end_many(1, packed.size)

    cpdef end_many(self, Py_ssize_t count, int64_t size):
        """Count deliveries as ended, and release their room."""
        self.budget._release(size, count)
        self.count -= count
        if self.count == 0:
            self.on_idle()


@cython.final
@cython.freelist(1024)
cdef class FirstAttempt:
    """The waiter of an enqueued message that was sent at once.

    It ends the delivery. After a failure `retry` makes the other attempts.
    """

    cdef Delivery delivery
    cdef object retry
    cdef object target
    cdef int64_t deadline_ms

    def __init__(self, Delivery delivery not None, retry, int64_t deadline_ms, target):
        self.delivery, self.retry, self.target = delivery, retry, target
        self.deadline_ms = deadline_ms

    def done(self):
        """Return False: no task waits here that could be cancelled."""
        return False

    def set_result(self, answer):
        """End the delivery; after a refusal try again."""
        if type(answer) is SendResult:
            self.delivery._end(answer)
        else:
            self.retry(self.delivery, answer, self.deadline_ms, self.target)

    def set_exception(self, error):
        """Try again, because there is no answer."""
        self.retry(self.delivery, error, self.deadline_ms, self.target)


@cython.final
cdef class EndCounter:
    """Counts ended messages; `on_first` is called for the first one after `reset`."""

    cdef Py_ssize_t count
    cdef object on_first

    def __init__(self, on_first):
        self.on_first = on_first

    cdef int _add(self) except -1:
        self.count += 1
        if self.count == 1:
            self.on_first()
        return 0

    def reset(self):
        """Return the number of messages that have ended since the last call."""
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
        """Whether the broker has answered, or all attempts have failed."""
        return self.inner is not None

    def result(self, timeout_s=None):
        """Wait for the result; raises TimeoutError or the error of the message."""
        if self.inner is None and not self.await_end(self, timeout_s):
            raise TimeoutError(f"no result within {timeout_s:g} s")
        if type(self.inner) is Delivery:
            return self.inner.result()
        raise self.inner

    def end(self, inner not None):
        """End it with its delivery, or an error before the send; for the producer."""
        self.inner = inner
        self.ends._add()


async def send_packed(
    DirectSends sender not None, SendBudget budget not None,
    PackedMessage packed not None, wait_for_room, int64_t timeout_ms,
):
    """Send a message to any queue; `wait_for_room` waits if the budget has no room.

    Nearly always the first attempt is the only one. If the connection is open, this
    function makes the attempt, without calls for routes and connections.
    """
    cdef int64_t now_ms, deadline_ms
    if not budget._try_acquire(packed.size, 1):
        await wait_for_room(packed.size)
    try:
        ready = sender._ready(packed.topic)
        if ready is None:
            return await sender.send(packed, timeout_ms)
        target, connection = ready
        waiter = connection.new_waiter()
        now_ms = _steady_ms()
        deadline_ms = now_ms + timeout_ms
        number = connection.send(
            target.single, packed.properties, packed.body, waiter,
            now_ms + min(timeout_ms, sender.attempt_timeout_ms), packed.msg_ids,
            packed.sys_flag,
        )
        try:
            answer = await waiter
        except PeerError as error:
            answer = error
        finally:
            connection.codec.cancel(number)
        if type(answer) is SendResult:
            return answer
        return await sender.retry(packed, deadline_ms, target, answer)
    finally:
        budget._release(packed.size, 1)
