"""TimedSends: compiled sends of messages with a delivery time.

It serves a message with one property of a time, a whole number. The time must be in the
future and within the limit, and its slot not full. Python decides about all other
messages. The record goes into the timer's queue (`diversion.pyx`), and the reply gets
the field recallHandle, URL-safe Base64 with padding of
`v1 <topic> <broker> <begin of the slot + 1> <unique key>`.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.bytes.ascii cimport is_literal, put_integer, put_literal, put_text
from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.diversion cimport (
    DIVERTED, REFUSED, SOON_MS, Decision, Diversion, Place,
)
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.reactor.header_text cimport read_integer
from rmq._fastpath.reactor.native cimport Text

cdef const char *LETTERS = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
)


cdef uint8_t *_put_base64(
    uint8_t *out, const uint8_t *text, int64_t size
) noexcept nogil:
    cdef uint32_t three
    while size > 0:
        three = <uint32_t>text[0] << 16
        if size > 1:
            three |= <uint32_t>text[1] << 8
        if size > 2:
            three |= text[2]
        out[0] = LETTERS[three >> 18]
        out[1] = LETTERS[three >> 12 & 63]
        out[2] = LETTERS[three >> 6 & 63] if size > 1 else 61
        out[3] = LETTERS[three & 63] if size > 2 else 61
        out += 4
        text += 3
        size -= 3
    return out


@cython.final
cdef class TimedSends(Diversion):
    """The compiled form of the timer's interceptor."""

    def __init__(
        self,
        *,
        count_of not None,
        bytes broker_name not None,
        int64_t precision_ms,
        int64_t max_delay_ms,
        int64_t most_in_slot,
    ):
        """`count_of(slot)` returns the number of messages that wait in a slot.

        The two limits may change at any time.
        """
        if precision_ms < 1:
            raise ValueError(f"slots of {precision_ms} ms")
        self.count_of = count_of
        self.broker_name = broker_name
        self.broker, self.broker_size = self.broker_name, len(broker_name)
        self.precision_ms = precision_ms
        self.max_delay_ms = max_delay_ms
        self.most_in_slot = most_in_slot
        self.has_handle = True

    def register(self, QueueTail queue not None):
        """Register the timer's queue, and serve from now on."""
        if self.broker_size <= BROKER_LIMIT:
            self.queue = queue
            self.set_topic(queue)

    cdef Decision find_place(
        self, const Name *property, const Name *value, int64_t now_ms, Place *place
    ) noexcept nogil:
        """Find the slot of a message."""
        cdef Text text
        cdef int64_t number, delay_ms
        text.data, text.size, text.escaped = value.data, <int32_t>value.size, False
        if not read_integer(&text, 1, INT64_MAX, &number) or self.queue is None:
            return REFUSED
        if is_literal(property.data, property.size, b"TIMER_DELIVER_MS"):
            delay_ms = number - now_ms
        elif is_literal(property.data, property.size, b"TIMER_DELAY_MS"):
            delay_ms = number
        elif is_literal(property.data, property.size, b"TIMER_DELAY_SEC"):
            delay_ms = min(number, INT64_MAX // 1000) * 1000
        else:
            return REFUSED
        if not 0 < delay_ms <= self.max_delay_ms:
            return REFUSED
        number = (now_ms + delay_ms - 1) // self.precision_ms
        if self.is_crowded(number):
            return REFUSED
        place.queue = <void *>self.queue
        place.number = number * self.precision_ms
        place.has_tags_code = False
        place.is_soon = place.number + self.precision_ms - now_ms < SOON_MS
        return DIVERTED

    cdef bint is_crowded(self, int64_t slot) noexcept nogil:
        """True if Python may have to refuse a message for this slot."""
        with gil:
            return <int64_t>self.count_of(slot) >= self.most_in_slot

    cdef uint8_t *put_first(
        self, uint8_t *out, const Place *place, const uint8_t *key, int64_t key_size
    ) noexcept nogil:
        out = put_integer(put_literal(out, b"TIMER_OUT_MS\1"), place.number)
        return put_literal(out, b"\2")

    cdef uint8_t *put_handle(
        self, uint8_t *out, const Place *place, const Text *topic,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil:
        cdef uint8_t text[HANDLE_LIMIT]
        cdef uint8_t *end = put_literal(text, b"v1 ")
        end = put_text(end, <const char *>topic.data, topic.size)
        end = put_literal(end, b" ")
        end = put_text(end, self.broker, self.broker_size)
        end = put_integer(put_literal(end, b" "), place.number + 1)
        end = put_text(put_literal(end, b" "), <const char *>key, key_size)
        return _put_base64(out, text, end - text)
