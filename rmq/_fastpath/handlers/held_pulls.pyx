"""HeldPulls: pulls that wait for messages and get their reply without Python.

`PullPath` holds a plain pull that is at the end of its queue, with the numbers of its
request. Such pulls wait in groups: the pulls of one view in one queue get the same
messages. A published entry marks the groups of its queue ready. The end of the poll
reads the new entries once per group, and sends the replies if an entry matches. A turn
serves as many ready groups as its time allows; the next turn continues. A pull also
ends at its deadline and when its connection closes. Python gets the frame of a pull
back if the view is removed, or if compiled code cannot read the message.

POPs and notifications wait in two more tables of this class. Most of their groups wait
for a topic (`pop_path.pyx`, `notification_path.pyx`). They have no offset.

Every pull is in three lists: of its group, of its connection's slot, and of the tick of
its deadline.  So no code walks over all pulls.
Bounds: `set_limits` limits them in all, per connection and per view; together they have
at most SIZE_LIMIT bytes.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from rmq._fastpath.log.waiters cimport (
    Waiter, link_waiter, mark_ready, unlink_ready, unlink_waiter,
)

from typing import NamedTuple

cdef enum:
    SIZE_LIMIT = 256 * 1024 * 1024
    FIRST_SLOTS = 64


class ReturnedPull(NamedTuple):
    """A pull that Python continues for `left_ms`, from `tested_offset` on."""

    token: int
    frame: bytes
    left_ms: int
    tested_offset: int


class HeldPullCounts(NamedTuple):
    """Number of compiled pulls that wait, and numbers of ended pulls, by the way in
    which they ended.
    """

    waiting: int
    held: int
    refused: int
    woken: int
    expired: int
    dropped: int
    returned: int


@cython.final
cdef class HeldPulls:
    """All pulls that compiled code holds."""

    def __cinit__(self, on_work):
        """`on_work` is called when `take_returned` has pulls, and for a pull that ends
        before `next_deadline`.
        """
        self.on_work = on_work
        self.wake_ms = INT64_MAX
        self.returned_pulls = []
        self.total_limit = self.connection_limit = self.view_limit = 0
        self.suspend_limit_ms = (TICK_COUNT - 2) * TICK_MS
        self.ticks = <HeldPull **>calloc(TICK_COUNT, sizeof(HeldPull *))
        if self.ticks == NULL:
            raise MemoryError

    def __dealloc__(self):
        cdef int64_t i
        cdef HeldPull *held
        for i in range(self.slot_capacity):
            held = self.slots[i]
            while held != NULL:
                self.slots[i] = held.next_of_slot
                free(held)
                held = self.slots[i]
        free(self.slots)
        free(self.slot_counts)
        free(self.ticks)

    def set_limits(
        self,
        *,
        int64_t total,
        int64_t per_connection,
        int64_t per_view,
        int64_t suspend_ms,
        int64_t short_poll_ms=0,
    ):
        """Set the limits of held pulls; each waits for at most `suspend_ms`.

        `short_poll_ms` replaces the suspension that a request asks for; 0: no
        replacement.
        """
        self.total_limit = total
        self.connection_limit = per_connection
        self.view_limit = per_view
        self.suspend_limit_ms = min(suspend_ms, (TICK_COUNT - 2) * TICK_MS)
        self.short_poll_ms = short_poll_ms

    # -- hold and remove

    cdef bint has_room(
        self, const HeldGroup *group, uint64_t token, int64_t size
    ) noexcept nogil:
        cdef uint32_t slot = <uint32_t>token
        if self.is_stopped or self.waiting + self.others >= self.total_limit:
            return False
        if self.size + size > SIZE_LIMIT or group.count >= self.view_limit:
            return False
        return (
            slot >= self.slot_capacity
            or self.slot_counts[slot] < self.connection_limit
        )

    cdef bint hold_pull(
        self, HeldGroup *group, const Pull *pull, uint64_t token, int32_t opaque,
        uint8_t serialize_type, const uint8_t *frame, int64_t frame_size,
    ) noexcept nogil:
        """Hold a pull that found no message; False: Python holds it.

        It lowers `wake_ms` and calls Python for a pull that ends earlier.
        """
        cdef uint32_t slot = <uint32_t>token
        cdef int64_t size = sizeof(HeldPull) + frame_size
        cdef int64_t suspend_ms = pull.suspend_ms
        cdef HeldPull *held
        if self.short_poll_ms:
            suspend_ms = self.short_poll_ms
        if not self.has_room(group, token, size) or suspend_ms <= 0:
            return False
        if slot >= self.slot_capacity and not self.reserve_slot(slot):
            return False
        held = <HeldPull *>malloc(size)
        if held == NULL:
            return False
        held.group = group
        held.token = token
        held.pull = pull[0]
        held.opaque = opaque
        held.serialize_type = serialize_type
        held.is_due = False
        held.front = NULL
        held.frame = <uint8_t *>held + sizeof(HeldPull)
        held.frame_size = frame_size
        memcpy(held.frame, frame, frame_size)
        held.deadline_ms = pull.now_ms + min(suspend_ms, self.suspend_limit_ms)
        if group.count == 0:
            group.tested_offset = pull.offset
        held.next = NULL
        held.previous = group.last
        if group.last != NULL:
            group.last.next = held
        else:
            group.first = held
        group.last = held
        held.previous_of_slot = NULL
        held.next_of_slot = self.slots[slot]
        if held.next_of_slot != NULL:
            held.next_of_slot.previous_of_slot = held
        self.slots[slot] = held
        self.link_tick(held, pull.now_ms)
        group.count += 1
        self.slot_counts[slot] += 1
        self.waiting += 1
        self.held += 1
        self.size += size
        return True

    cdef void count_call(self, HeldPull *held, HeldFront *front) noexcept nogil:
        """Mark a held request as a call of another protocol."""
        held.front, held.count = front, front.count
        held.count[0] += 1
        self.calls += 1

    cdef bint reserve_slot(self, uint32_t slot) noexcept nogil:
        """Make room for the list of a slot."""
        cdef uint32_t capacity = max(self.slot_capacity, <uint32_t>FIRST_SLOTS)
        cdef void *slots
        cdef void *counts
        while capacity <= slot:
            capacity *= 2
        slots = realloc(self.slots, capacity * sizeof(HeldPull *))
        if slots == NULL:
            return False
        self.slots = <HeldPull **>slots
        counts = realloc(self.slot_counts, capacity * sizeof(int64_t))
        if counts == NULL:
            return False
        self.slot_counts = <int64_t *>counts
        memset(
            self.slots + self.slot_capacity, 0,
            (capacity - self.slot_capacity) * sizeof(HeldPull *),
        )
        memset(
            self.slot_counts + self.slot_capacity, 0,
            (capacity - self.slot_capacity) * sizeof(int64_t),
        )
        self.slot_capacity = capacity
        return True

    cdef void remove_pull(self, HeldPull *held) noexcept nogil:
        """Remove a pull from its lists and free it."""
        cdef HeldGroup *group = held.group
        cdef uint32_t slot = <uint32_t>held.token
        if held.previous != NULL:
            held.previous.next = held.next
        else:
            group.first = held.next
        if held.next != NULL:
            held.next.previous = held.previous
        else:
            group.last = held.previous
        if held.previous_of_slot != NULL:
            held.previous_of_slot.next_of_slot = held.next_of_slot
        else:
            self.slots[slot] = held.next_of_slot
        if held.next_of_slot != NULL:
            held.next_of_slot.previous_of_slot = held.previous_of_slot
        self.unlink_tick(held)
        group.count -= 1
        self.slot_counts[slot] -= 1
        self.waiting -= 1
        if held.front != NULL:
            held.count[0] -= 1
            self.calls -= 1
        self.size -= sizeof(HeldPull) + held.frame_size
        free(held)

    cdef void link_tick(self, HeldPull *held, int64_t now_ms) noexcept nogil:
        """Link a pull to its tick; call Python if it ends before all others."""
        cdef int64_t tick = _tick_of(held)
        if self.waiting == 0:
            self.tick = now_ms // TICK_MS
        else:
            self.expire(now_ms)     # the ring has no ticks that are over
        held.previous_of_tick = NULL
        held.next_of_tick = self.ticks[tick % TICK_COUNT]
        if held.next_of_tick != NULL:
            held.next_of_tick.previous_of_tick = held
        self.ticks[tick % TICK_COUNT] = held
        if tick * TICK_MS < self.wake_ms:
            self.wake_ms = tick * TICK_MS
            with gil:
                self.on_work()

    cdef void unlink_tick(self, HeldPull *held) noexcept nogil:
        if held.previous_of_tick != NULL:
            held.previous_of_tick.next_of_tick = held.next_of_tick
        elif held.is_due:
            self.due = held.next_of_tick
        else:
            self.ticks[_tick_of(held) % TICK_COUNT] = held.next_of_tick
        if held.next_of_tick != NULL:
            held.next_of_tick.previous_of_tick = held.previous_of_tick

    cdef HeldPull *first_of(self, uint64_t token) noexcept nogil:
        """Return the first pull in the list of a connection, or NULL."""
        cdef uint32_t slot = <uint32_t>token
        if slot >= self.slot_capacity or self.slots[slot] == NULL:
            return NULL
        return self.slots[slot] if self.slots[slot].token == token else NULL

    def drop_connection(self, uint64_t token):
        """Remove the pulls of a closed connection."""
        while self.first_of(token) != NULL:
            self.remove_pull(self.first_of(token))
            self.dropped += 1

    # -- ready, hidden and due pulls

    cdef bint has_work(self) noexcept nogil:
        return (
            self.ready.first != NULL
            or self.hidden.first != NULL
            or self.due != NULL
        )

    @property
    def wants_turn(self):
        """True if a turn may have work."""
        return self.has_work()

    cdef void recheck_hidden(self) noexcept nogil:
        """Mark groups ready again whose messages were not visible yet."""
        cdef Waiter *waiter = self.hidden.first
        cdef Waiter *following
        self.hidden.first = self.hidden.last = NULL
        while waiter != NULL:
            following = waiter.next_ready
            waiter.ready = &self.ready
            waiter.is_ready = False
            mark_ready(waiter)
            waiter = following

    cdef HeldGroup *next_ready(self) noexcept nogil:
        """Remove and return the next ready group; NULL without one."""
        cdef Waiter *waiter = self.ready.first
        if waiter != NULL:
            unlink_ready(waiter)
        return <HeldGroup *>waiter

    cdef void hide_group(self, HeldGroup *group) noexcept nogil:
        """Move a group to the hidden groups until its messages are visible."""
        if not group.waiter.is_ready:
            group.waiter.ready = &self.hidden
            mark_ready(&group.waiter)

    cdef void expire(self, int64_t now_ms) noexcept nogil:
        """Make the pulls due whose deadline is over at `now_ms`, on the clock of polls.
        """
        cdef int64_t until = now_ms // TICK_MS
        cdef int64_t first = max(self.tick + 1, until - TICK_COUNT + 1)
        cdef int64_t tick
        self.now_ms = now_ms
        if until <= self.tick or self.waiting == 0:
            return
        self.tick = until
        for tick in range(first, until + 1):
            self.make_due(tick % TICK_COUNT)

    def next_deadline(self, int64_t now_ms):
        """Make pulls due; return milliseconds until the next deadline, -1 without one.

        `on_work` is called for each later pull that ends before it.
        """
        cdef int64_t i
        self.expire(now_ms)
        self.wake_ms = INT64_MAX
        if self.waiting:
            for i in range(1, TICK_COUNT):
                if self.ticks[(self.tick + i) % TICK_COUNT] != NULL:
                    self.wake_ms = (self.tick + i) * TICK_MS
                    return max(<int64_t>0, self.wake_ms - now_ms)
        return -1

    def end_all(self):
        """Make every pull due and hold no more, because the broker stops."""
        cdef int64_t tick
        self.is_stopped = True
        for tick in range(TICK_COUNT):
            self.make_due(tick)

    cdef void make_due(self, int64_t tick) noexcept nogil:
        """Move the pulls of a tick to the due pulls."""
        cdef HeldPull *last = self.ticks[tick]
        if last == NULL:
            return
        last.is_due = True
        while last.next_of_tick != NULL:
            last = last.next_of_tick
            last.is_due = True
        last.next_of_tick = self.due
        if self.due != NULL:
            self.due.previous_of_tick = last
        self.due = self.ticks[tick]
        self.ticks[tick] = NULL

    # -- back to Python

    cdef void return_pull(self, HeldPull *held, int64_t tested_offset) noexcept nogil:
        """Return a pull to Python."""
        cdef int64_t left_ms = max(<int64_t>0, held.deadline_ms - self.now_ms)
        with gil:
            if held.front != NULL:
                held.front.return_call(held.front.owner, held, left_ms)
            else:
                self.returned_pulls.append(ReturnedPull(
                    held.token, held.frame[:held.frame_size], left_ms, tested_offset
                ))
            self.returned += 1
            self.remove_pull(held)
            self.on_work()

    cdef void return_group(self, HeldGroup *group) noexcept nogil:
        """Return all pulls of a group to Python, and free it.

        Their filter may have changed: reset `tested_offset` so that all entries are
        checked again.
        """
        while group.first != NULL:
            self.return_pull(group.first, 0)
        unlink_waiter(&group.waiter)
        free(group)

    def take_returned(self):
        """Return the pulls that Python continues, as `ReturnedPull`."""
        taken = self.returned_pulls
        self.returned_pulls = []
        return taken

    def counts(self):
        """Return the counters."""
        return HeldPullCounts(
            self.waiting, self.held, self.refused, self.woken, self.expired,
            self.dropped, self.returned,
        )


cdef HeldGroup *new_group(
    void *view, void *queue, Waiter **first_of_queue, HeldPulls pulls
) noexcept nogil:
    """Return a group without pulls, linked to its queue; NULL without memory."""
    cdef HeldGroup *group = <HeldGroup *>calloc(1, sizeof(HeldGroup))
    if group == NULL:
        return NULL
    group.view = view
    group.queue = queue
    link_waiter(&group.waiter, first_of_queue, &pulls.ready)
    return group


cdef int64_t _tick_of(const HeldPull *held) noexcept nogil:
    """Return the first tick at which the deadline of a pull is over."""
    return (held.deadline_ms + TICK_MS - 1) // TICK_MS
