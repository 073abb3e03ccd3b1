from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.reactor.header_scan cimport RawHeader
from rmq._fastpath.reactor.native cimport Text
from rmq._fastpath.reactor.signatures cimport FieldOrder
from rmq._fastpath.reactor.template cimport Template

cdef enum:
    GRANT_LIMIT = 4096          # maximum number of grants; one more grant removes all
    SLOT_COUNT = 8192
    KEY_LIMIT = 1024            # maximum bytes; Python serves longer names
    RULE_FIELD_LIMIT = 4
    RULE_LIMIT = 127
    LOW_CODES = 1024
    HIGH_CODES_START = 200000   # codes of 5.x clients: POP and others
    HIGH_CODES = 256
    RULE_CODES = 1280           # number of places: LOW_CODES, then HIGH_CODES

cdef struct Rule:  # fields that decide whether requests of one code are allowed
    int32_t field_count
    Text fields[RULE_FIELD_LIMIT]   # names of the fields
    FieldOrder order            # order of the fields in the last request

cdef struct Signer:             # the signature of a request of another protocol
    Text user                   # user who signed; data NULL: not signed
    const uint8_t *content      # content that is signed
    int64_t content_size
    uint8_t[20] digest          # the signature
    bint is_verified            # Python has verified the signature

cdef struct Grant:
    uint64_t hash
    int32_t key_size
    uint32_t secret[10]         # see prepare_secret
    uint8_t key[1]              # `key_size` bytes

cdef class Grants:
    cdef tuple names            # keeps the names of the rules alive
    cdef Rule *rules
    # index + 1 of the rule, by place of the code; 0: no rule
    cdef uint8_t rule_of[RULE_CODES]
    cdef Grant **slots
    cdef int32_t count
    cdef readonly int64_t allowed
    cdef readonly int64_t unknown       # number of requests without a grant
    # number of requests with a grant and a wrong signature
    cdef readonly int64_t unsigned

    cdef bint allow_header(
        self,
        const RawHeader *raw,
        const uint8_t *address,
        int32_t address_size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil
    cdef bint allow_templated(
        self,
        const Template *template,
        const Text *values,
        const uint8_t *address,
        int32_t address_size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil
    cdef bint allow_call(
        self,
        const Signer *signer,
        int32_t code,
        const uint8_t *address,
        int32_t address_size,
        const Text *names,
        const Text *values,
        int32_t count,
    ) noexcept nogil
    cdef bint describe_template(
        self, Template *template, const RawHeader *raw, const uint8_t *header
    ) noexcept nogil
    cdef Grant *find(
        self,
        int32_t code,
        const uint8_t *address,
        int32_t address_size,
        const Text *subject,
        int32_t subject_count,
    ) noexcept nogil
    cdef bint verify(
        self,
        const Grant *grant,
        const Text *signature,
        const uint8_t *content,
        int32_t size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil
    cdef Rule *rule_for(self, int32_t code) noexcept nogil
    cdef Grant **slot_of(
        self, const uint8_t *key, int32_t size, uint64_t hash
    ) noexcept nogil
