from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.http2.call_paths cimport CallAnswer, CallPath
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.http2.sent_message cimport SentMessage

cdef struct KnownTopic:
    int32_t queue_count         # number of writable queues
    uint32_t kinds              # bit n: the topic takes messages of type n

cdef class SendCalls(CallPath):
    cdef object now_ms
    cdef int64_t largest_body
    cdef dict topics            # name to (key, KnownTopic in bytes)
    cdef NameTable names        # names of topics; the broker limits their number
    cdef NameTable reserved     # names of properties
    cdef list reserved_keys
    cdef int64_t turn           # counter by which sends use the queues in turn
    cdef uint8_t *text          # the properties of the message
    cdef uint8_t *reply         # bytes of the handler's reply
    cdef uint8_t *answer        # bytes of the call's answer

    cdef KnownTopic *find_topic(self, const SentMessage *message) noexcept nogil
    cdef bint is_plain(
        self, const SentMessage *message, const KnownTopic *topic
    ) noexcept nogil
    cdef bint is_due_within_limit(self, int64_t due_ms) noexcept nogil
    cdef int64_t choose_queue(
        self, const SentMessage *message, int32_t count
    ) noexcept nogil
    cdef uint8_t *put_keys(
        self, uint8_t *out, const SentMessage *message
    ) noexcept nogil
    cdef uint8_t *put_properties(self, const SentMessage *message) noexcept nogil
    cdef uint8_t *put_user_properties(
        self, uint8_t *out, const SentMessage *message
    ) noexcept nogil
    cdef bint is_reserved(self, const Span *name) noexcept nogil
    cdef void build_answer(
        self, const SentMessage *message, const uint8_t *end, CallAnswer *answer
    ) noexcept nogil
