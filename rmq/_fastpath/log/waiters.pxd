"""Waiters of a queue or a topic: they become ready when an entry is published.

An owner of waiters puts a `Waiter` first into its own struct and casts back. A waiter
is in the list of its queue and, while `is_ready`, in the list of ready waiters. The log
uses no other field of the owner's struct; the owner is `handlers/held_pulls.pyx`. The
waiters of a topic (`TopicWatch`) are in the list of the topic instead.
"""

cdef struct Waiter:
    Waiter *next_of_queue
    Waiter *previous_of_queue
    Waiter **first_of_queue  # points to QueueTail.waiters or TopicWatch.waiters
    Waiter *next_ready
    Waiter *previous_ready
    ReadyWaiters *ready  # list to which the waiter is added when it becomes ready
    bint is_ready               # the waiter is ready, and is in that list

cdef struct ReadyWaiters:
    Waiter *first
    Waiter *last


cdef inline void link_waiter(
    Waiter *waiter, Waiter **first_of_queue, ReadyWaiters *ready
) noexcept nogil:
    """Add a zeroed waiter to its queue."""
    waiter.ready = ready
    waiter.first_of_queue = first_of_queue
    waiter.next_of_queue = first_of_queue[0]
    if waiter.next_of_queue != NULL:
        waiter.next_of_queue.previous_of_queue = waiter
    first_of_queue[0] = waiter


cdef inline void unlink_waiter(Waiter *waiter) noexcept nogil:
    """Remove a waiter from its queue, and from its ready list."""
    if waiter.is_ready:
        unlink_ready(waiter)
    if waiter.previous_of_queue != NULL:
        waiter.previous_of_queue.next_of_queue = waiter.next_of_queue
    else:
        waiter.first_of_queue[0] = waiter.next_of_queue
    if waiter.next_of_queue != NULL:
        waiter.next_of_queue.previous_of_queue = waiter.previous_of_queue


cdef inline void mark_ready(Waiter *waiter) noexcept nogil:
    """Append a waiter to its ready list, once."""
    if waiter.is_ready:
        return
    waiter.is_ready = True
    waiter.next_ready = NULL
    waiter.previous_ready = waiter.ready.last
    if waiter.ready.last != NULL:
        waiter.ready.last.next_ready = waiter
    else:
        waiter.ready.first = waiter
    waiter.ready.last = waiter


cdef inline void unlink_ready(Waiter *waiter) noexcept nogil:
    """Remove a waiter from the ready list that it is in."""
    if waiter.previous_ready != NULL:
        waiter.previous_ready.next_ready = waiter.next_ready
    else:
        waiter.ready.first = waiter.next_ready
    if waiter.next_ready != NULL:
        waiter.next_ready.previous_ready = waiter.previous_ready
    else:
        waiter.ready.last = waiter.previous_ready
    waiter.is_ready = False


cdef inline void wake_waiters(Waiter *waiter) noexcept nogil:
    """Mark the waiters of a queue ready, from its first one on."""
    while waiter != NULL:
        mark_ready(waiter)
        waiter = waiter.next_of_queue
