"""Diversion: the other queue in which compiled sends store a message that must wait.

A plugin creates one and registers it as the compiled form of its interceptor.
`SendTable` calls it for messages with one of the interceptor's properties, and has no
other code for delays, times and transactions.
A diversion serves a message with one such property whose meaning it knows. Python
decides about all other messages, and about messages with one of the `ADDRESS_NAMES`.
The record goes into another queue, with properties after all others:

    TIMER_OUT_MS 1 <begin of the slot> 2            of a message with a time
    __transactionId__ 1 <unique key> 2              of a half message
    REAL_TOPIC 1 <topic> 2 REAL_QID 1 <queue> 2

`DelayedSends` is for messages with a delay level: the queue's entry has the time at
which the message is due. `HalfSends` is for half messages. `TimedSends` has a module of
its own. Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free

from rmq._fastpath.bytes.ascii cimport (
    is_literal, put_integer, put_literal, put_text, read_decimal,
)
from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.log.layout cimport RecordFlag
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.reactor.native cimport Text

ADDRESS_NAMES = (
    "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "REAL_TOPIC", "REAL_QID", "__transactionId__",
    "TRAN_PREPARED_QUEUE_OFFSET", "TRANSACTION_CHECK_TIMES",
)


cdef class Diversion:
    """The compiled form of an interceptor."""

    cdef int set_topic(self, QueueTail queue) except -1:
        """Set the topic of all queues from one of them."""
        self.topic_bytes = queue.topic_bytes
        self.topic, self.topic_size = self.topic_bytes, len(self.topic_bytes)
        return 0

    cdef Decision find_place(
        self, const Name *property, const Name *value, int64_t now_ms, Place *place
    ) noexcept nogil:
        """Find the place of a message with this property."""
        return REFUSED

    cdef uint8_t *put_first(
        self, uint8_t *out, const Place *place, const uint8_t *key, int64_t key_size
    ) noexcept nogil:
        """Write the properties before the address; `key` is the unique key."""
        return out

    cdef uint8_t *put_address(
        self, uint8_t *out, const Place *place, const Text *topic, int32_t queue_id,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil:
        """Write the properties that the message gets."""
        out = self.put_first(out, place, key, key_size)
        out = put_literal(out, b"REAL_TOPIC\1")
        out = put_text(out, <const char *>topic.data, topic.size)
        out = put_integer(put_literal(out, b"\2REAL_QID\1"), queue_id)
        return put_literal(out, b"\2")

    cdef void record_staged(
        self, const Place *place, const Text *topic
    ) noexcept nogil:
        """Record that a message is staged for the place."""

    cdef uint8_t *put_handle(
        self, uint8_t *out, const Place *place, const Text *topic,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil:
        """Write the handle by which a client may recall the message."""
        return out


@cython.final
cdef class DelayedSends(Diversion):
    """Sends with a delay level: the property DELAY."""

    def __cinit__(self, tuple delays_ms not None, set expected not None):
        """`delays_ms` are the delays of the levels.

        `expected` gets the levels of messages that were staged.
        """
        cdef Py_ssize_t i
        self.queues = [None] * (len(delays_ms) + 1)
        self.expected = expected
        self.delays_ms = <int64_t *>calloc(len(delays_ms) + 1, sizeof(int64_t))
        if self.delays_ms == NULL:
            raise MemoryError
        for i in range(len(delays_ms)):
            self.delays_ms[i + 1] = delays_ms[i]

    def __dealloc__(self):
        free(self.delays_ms)

    def register(self, int32_t level, QueueTail queue not None):
        """Serve a level from now on, if there is such a level."""
        if 0 < level < len(self.queues):
            self.queues[level] = queue
            self.set_topic(queue)

    def has_level(self, int32_t level):
        """Return whether the queue of a level is known."""
        return 0 < level < len(self.queues) and self.queues[level] is not None

    cdef Decision find_place(
        self, const Name *property, const Name *value, int64_t now_ms, Place *place
    ) noexcept nogil:
        cdef int64_t level
        if is_literal(value.data, value.size, b"0"):
            return PLAIN
        if not read_decimal(value.data, value.size, 1, 1 << 30, &level):
            return REFUSED
        with gil:
            if not self.has_level(<int32_t>level):
                return REFUSED
            place.queue = <void *>self.queues[level]
        place.number = level
        place.has_tags_code = True
        place.tags_code = now_ms + self.delays_ms[level]
        place.is_soon = self.delays_ms[level] < SOON_MS
        return DIVERTED

    cdef void record_staged(
        self, const Place *place, const Text *topic
    ) noexcept nogil:
        with gil:
            self.expected.add(place.number)


@cython.final
cdef class HalfSends(Diversion):
    """Half messages of transactions: the property TRAN_MSG."""

    def __init__(self, *, may_open not None, on_open not None):
        """`may_open()` returns whether the broker accepts one more transaction.

        `on_open(topic)` is called for each half message.
        """
        self.may_open = may_open
        self.on_open = on_open
        self.accepted_flags = RecordFlag.TRANSACTION_PREPARED

    def register(self, QueueTail queue not None):
        """Register the queue of half messages, and serve from now on."""
        self.queue = queue
        self.set_topic(queue)

    cdef Decision find_place(
        self, const Name *property, const Name *value, int64_t now_ms, Place *place
    ) noexcept nogil:
        if self.queue is None or not is_literal(value.data, value.size, b"true"):
            return REFUSED
        with gil:
            if not self.may_open():
                return REFUSED
        place.queue = <void *>self.queue
        place.has_tags_code = place.is_soon = False
        return DIVERTED

    cdef uint8_t *put_first(
        self, uint8_t *out, const Place *place, const uint8_t *key, int64_t key_size
    ) noexcept nogil:
        out = put_literal(out, b"__transactionId__\1")
        return put_literal(put_text(out, <const char *>key, key_size), b"\2")

    cdef void record_staged(
        self, const Place *place, const Text *topic
    ) noexcept nogil:
        with gil:
            self.on_open(topic.data[:topic.size].decode())
