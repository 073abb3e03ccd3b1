from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.reactor.native cimport Text

cdef enum:
    DIVERTED_EXTRA = 768        # most bytes that a record gets in addition
    HANDLE_ROOM = 1536          # that the field with a handle takes in a reply
    SOON_MS = 1500              # a poll does not notify Python of later messages

cdef enum Decision:
    REFUSED = 0                 # Python decides
    PLAIN = 1                   # the property has no meaning: stored as it came
    DIVERTED = 2

cdef struct Place:              # of a message that does not go to its own queue yet
    void *queue
    int64_t number              # of its level, or the time of its slot
    int64_t tags_code           # of its queue entry, with `has_tags_code`
    bint has_tags_code
    bint is_soon                # Python has to hear of it at the end of the poll

cdef class Diversion:
    cdef bytes topic_bytes
    cdef const uint8_t *topic               # of the queues
    cdef int32_t topic_size
    cdef readonly int32_t accepted_flags    # system flags that are then not stored
    cdef readonly bint has_handle           # replies have the field recallHandle

    cdef int set_topic(self, QueueTail queue) except -1
    cdef Decision find_place(
        self, const Name *property, const Name *value, int64_t now_ms, Place *place
    ) noexcept nogil
    cdef uint8_t *put_first(
        self, uint8_t *out, const Place *place, const uint8_t *key, int64_t key_size
    ) noexcept nogil
    cdef uint8_t *put_address(
        self, uint8_t *out, const Place *place, const Text *topic, int32_t queue_id,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil
    cdef void record_staged(
        self, const Place *place, const Text *topic
    ) noexcept nogil
    cdef uint8_t *put_handle(
        self, uint8_t *out, const Place *place, const Text *topic,
        const uint8_t *key, int64_t key_size,
    ) noexcept nogil

cdef class DelayedSends(Diversion):
    cdef int64_t *delays_ms     # by level, from 1 on
    cdef list queues            # by level; None: not registered yet
    cdef set expected           # levels with messages that Python has not seen

cdef class HalfSends(Diversion):
    cdef object may_open
    cdef object on_open
    cdef readonly QueueTail queue
