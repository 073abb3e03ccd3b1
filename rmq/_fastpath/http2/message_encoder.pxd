from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.http2.proto_wire cimport Span
from rmq._fastpath.log.decode cimport RecordParts

cdef enum:
    PAIR_LIMIT = 64  # maximum properties of a record; Python encodes records with more

cdef struct Pair:               # one property
    Span name
    Span value

cdef struct KnownValues:        # properties with a meaning; data NULL: absent
    Span tag
    Span keys
    Span message_id
    Span born_host
    Span group
    Span trace_context
    int64_t due_ms              # -1: no time of delivery
    bint is_half

cdef struct Delivered:          # values that all messages of an answer have
    const uint8_t *topic
    int64_t topic_size
    int64_t start               # start of the POP in the queue of the message
    int64_t pop_ms
    int64_t invisible_ms
    int64_t revive_queue
    bint is_padded              # the digest is padded to eight digits

cdef class MessageEncoder:
    cdef bytes broker_name
    cdef list reserved_keys
    cdef NameTable reserved     # names of properties that no user sets
    cdef uint8_t *room          # memory for the parts of a message
    cdef int64_t capacity
    # parts of the prepared message: the handle begins in `room`
    cdef uint8_t *user          # its user properties
    cdef uint8_t *system        # its system properties
    cdef uint8_t *end           # after them
    cdef int64_t size           # without key and size of its field

    cdef bint reserve(self, int64_t size) except -1
    cdef bint is_reserved(self, const Span *name) noexcept nogil
    cdef bint find_values(
        self, const Pair *pairs, int count, KnownValues *known
    ) noexcept nogil
    cdef uint8_t *put_user_properties(
        self, uint8_t *out, const Pair *pairs, int count
    ) noexcept nogil
    cdef uint8_t *put_system(
        self, uint8_t *out, const uint8_t *record, const RecordParts *parts,
        const KnownValues *known, const Delivered *delivered, const Span *handle,
        int32_t earlier,
    ) noexcept nogil
    cdef bint is_plain(
        self, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered, int32_t earlier,
    ) noexcept nogil
    cdef encode_one(
        self, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered, int32_t earlier,
    )
    cdef str handle_text(self)
    cdef int64_t prepare(
        self, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered, int32_t earlier,
    ) except -2
    cdef uint8_t *put_prepared(
        self, uint8_t *out, const uint8_t *record, const RecordParts *parts,
        const Delivered *delivered,
    ) noexcept nogil
    cdef uint8_t *put_handle(
        self, uint8_t *out, const RecordParts *parts, const Delivered *delivered
    ) noexcept

cdef int32_t earlier_of(const uint8_t *record, const RecordParts *parts) noexcept nogil
cdef uint8_t *put_time(uint8_t *out, uint32_t number, int64_t ms) noexcept nogil
