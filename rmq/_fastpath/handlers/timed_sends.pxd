from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.reactor.native cimport Text

cdef enum:
    BROKER_LIMIT = 512          # bytes of a broker's name in a handle
    HANDLE_LIMIT = 1024         # of the text of a handle, before Base64
    HANDLE_ROOM = 1536          # that the field with it takes in a reply
    TIMED_EXTRA = 256           # most bytes that a record gets in addition to its topic
    SOON_MS = 1500              # a poll does not notify Python of later messages

cdef class TimedSends:
    cdef object count_of        # how many messages of a slot wait
    cdef bytes broker_name
    cdef const char *broker
    cdef int64_t broker_size
    cdef int64_t precision_ms
    cdef public int64_t max_delay_ms
    cdef public int64_t most_in_slot
    cdef readonly QueueTail queue   # None: not registered yet, and nothing is served
    cdef const uint8_t *topic       # of this queue
    cdef int32_t topic_size

    cdef bint find_slot(
        self,
        const Name *property,
        const Name *value,
        int64_t now_ms,
        int64_t *out_ms,
    ) noexcept nogil
    cdef bint is_crowded(self, int64_t slot) noexcept nogil
    cdef bint is_due_soon(self, int64_t out_ms, int64_t now_ms) noexcept nogil
    cdef uint8_t *put_address(
        self, uint8_t *out, int64_t out_ms, const Text *topic, int32_t queue_id
    ) noexcept nogil
    cdef uint8_t *put_handle(
        self,
        uint8_t *out,
        int64_t out_ms,
        const Text *topic,
        const uint8_t *key,
        int64_t key_size,
    ) noexcept nogil
