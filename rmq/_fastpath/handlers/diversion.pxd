from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.reactor.native cimport Text

cdef enum:
    DIVERTED_EXTRA = 768        # maximum bytes that a diversion adds to a record
    HANDLE_ROOM = 1536          # bytes of the field with a handle in a reply
    SOON_MS = 1500  # maximum delay of messages of which a poll notifies Python

cdef enum Decision:
    REFUSED = 0                 # Python decides
    PLAIN = 1  # the property has no meaning: the message is stored unchanged
    DIVERTED = 2

cdef struct Place:  # the queue of a message that is not stored in its own queue yet
    void *queue
    int64_t number              # queue id of its level, or the time of its slot
    int64_t tags_code           # tags code of its queue entry, with `has_tags_code`
    bint has_tags_code
    bint is_soon  # Python is notified of the message at the end of the poll

cdef class Diversion:
    cdef bytes topic_bytes
    cdef const uint8_t *topic               # topic of the queues
    cdef int32_t topic_size
    # system flags that a diversion removes before it stores
    cdef readonly int32_t accepted_flags
    cdef readonly bint has_handle  # whether replies have the field recallHandle

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
    cdef int64_t *delays_ms     # delays by level, from level 1 on
    cdef list queues            # queues by level; None: not registered yet
    cdef set expected  # levels with messages of which Python was not notified yet

cdef class HalfSends(Diversion):
    cdef object may_open
    cdef object on_open
    cdef readonly QueueTail queue
