"""Grants: requests that a guard in Python has allowed, so that compiled handlers may
repeat them.

A grant allows a user to send requests of one code about some resources from one
address, and has the key of the user's signatures. The guard adds a grant after it has
allowed such a request in Python. `allow_header` finds the grant of a later request and
checks its signature; `allow_templated` does it for a header that has matched a learned
template, `allow_call` for a request of another protocol. They may decline, but their
answer never differs from the guard's. A request that is unknown, not signed or not
plain is left to the guard, which decides and writes the refusal.

Invariant: a change of users or policies calls `unregister_all` before the next poll.

Key: i32 code, address, user, then the value of each field of the rule. User and values
are i16 size and bytes; -1 for a field that is absent. The key is padded with zeros to
whole words.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from rmq._fastpath.bytes.endian cimport get32
from rmq._fastpath.reactor.header_scan cimport RawHeader, scan_header
from rmq._fastpath.reactor.native cimport Frame, Text
from rmq._fastpath.reactor.signatures cimport (
    FIELDS_LIMIT, is_digest, is_signature, prepare_secret, signature_of,
    template_content, write_content, write_templated_content,
)
from rmq._fastpath.reactor.template cimport (
    HOLE_LIMIT, NO_HOLE, VARYING_LIMIT, SUBJECT_LIMIT, Signing, Template, hole_at,
    learn_template, match_template,
)


@cython.final
cdef class Grants:
    """Grants of a broker; `rules` has the fields that decide, by request code."""

    def __cinit__(self, dict rules not None):
        cdef bytes name
        cdef int32_t place
        cdef Rule *rule
        if len(rules) > RULE_LIMIT:
            raise ValueError(f"{len(rules)} rules")
        self.rules = <Rule *>calloc(len(rules) + 1, sizeof(Rule))
        self.slots = <Grant **>calloc(SLOT_COUNT, sizeof(Grant *))
        if self.rules == NULL or self.slots == NULL:
            raise MemoryError
        memset(self.rule_of, 0, sizeof(self.rule_of))
        names = []
        for index, (code, fields) in enumerate(rules.items()):
            place = _index_of_code(code)
            if place < 0:
                continue        # no compiled handler has such a code
            if len(fields) > RULE_FIELD_LIMIT:
                raise ValueError(f"code {code}: {fields}")
            rule = &self.rules[index]
            rule.field_count = len(fields)
            for i, field in enumerate(fields):
                name = field.encode()
                names.append(name)
                rule.fields[i].data = name
                rule.fields[i].size = len(name)
            self.rule_of[place] = index + 1
        self.names = tuple(names)

    def __dealloc__(self):
        if self.slots != NULL:
            self.unregister_all()
        free(self.slots)
        free(self.rules)

    def __len__(self):
        return self.count

    def unregister_all(self):
        """Remove all grants: users or policies have changed."""
        cdef int32_t i
        for i in range(SLOT_COUNT):
            free(self.slots[i])
            self.slots[i] = NULL
        self.count = 0

    def register(
        self,
        int code,
        bytes address not None,
        str user not None,
        str secret not None,
        tuple values not None,
    ):
        """Add a grant for a request that the guard has just allowed.

        `values` are the values of the rule's fields, `address` is the peer's without
        its port. A code without a rule, and names that are too long, are ignored.
        """
        cdef Text texts[RULE_FIELD_LIMIT + 1]
        cdef uint8_t key[KEY_LIMIT + 8]
        cdef uint64_t hash = 0
        cdef int32_t size, count = len(values)
        cdef Rule *rule
        cdef Grant **place
        cdef Grant *grant
        cdef bytes part, known = secret.encode()
        rule = self.rule_for(code)
        if rule == NULL:
            return
        if count != rule.field_count:
            raise ValueError(f"code {code}: {count} values")
        parts = [
            None if value is None else value.encode("utf-8", "surrogatepass")
            for value in (user, *values)
        ]
        for i in range(count + 1):
            texts[i].data = NULL
            texts[i].size = 0
            texts[i].escaped = False
            if parts[i] is not None:
                part = parts[i]
                texts[i].data = part
                texts[i].size = len(part)
        size = _write_key(
            key, code, address, len(address), texts, count + 1, &hash
        )
        if size == 0 or texts[0].size == 0:
            return
        if self.slot_of(key, size, hash)[0] != NULL:
            return
        if self.count == GRANT_LIMIT:
            self.unregister_all()
        grant = <Grant *>malloc(sizeof(Grant) + size)
        if grant == NULL:
            raise MemoryError
        grant.hash = hash
        grant.key_size = size
        memcpy(grant.key, key, size)
        prepare_secret(grant.secret, known, len(known))
        place = self.slot_of(key, size, hash)
        place[0] = grant
        self.count += 1

    def allows(self, bytes frame not None, bytes address not None):
        """True if an encoded request would be served; for tests and benchmarks."""
        cdef RawHeader raw
        cdef const uint8_t *p = frame
        cdef int64_t size = len(frame)
        cdef int64_t header_size = get32(p + 4) & 0xFFFFFF
        return scan_header(p + 8, header_size, p[4], &raw) and self.allow_header(
            &raw, address, <int32_t>len(address), p + 8 + header_size,
            size - 8 - header_size,
        )

    cdef Rule *rule_for(self, int32_t code) noexcept nogil:
        """Return the rule for requests of a code; NULL: Python decides."""
        cdef int32_t place = _index_of_code(code)
        if place < 0 or self.rule_of[place] == 0:
            return NULL
        return &self.rules[self.rule_of[place] - 1]

    cdef Grant **slot_of(
        self, const uint8_t *key, int32_t size, uint64_t hash
    ) noexcept nogil:
        """Return the slot of the grant with this key, or a free one for it."""
        cdef uint64_t i = hash % SLOT_COUNT
        cdef Grant *grant
        while True:
            grant = self.slots[i]
            if grant == NULL:
                return &self.slots[i]
            if (
                grant.hash == hash
                and grant.key_size == size
                and memcmp(grant.key, key, size) == 0
            ):
                return &self.slots[i]
            i = (i + 1) % SLOT_COUNT

    cdef bint allow_header(
        self,
        const RawHeader *raw,
        const uint8_t *address,
        int32_t address_size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil:
        """True if a permitted user has signed this request."""
        cdef uint8_t content[FIELDS_LIMIT]
        cdef Text subject[SUBJECT_LIMIT]
        cdef const Text *signature = signature_of(raw)
        cdef Rule *rule
        cdef Grant *grant
        rule = self.rule_for(raw.code)
        if rule == NULL:
            self.unknown += 1
            return False
        _find_subject(rule, raw, subject)
        grant = self.find(
            raw.code, address, address_size, subject, rule.field_count + 1
        )
        return grant != NULL and self.verify(
            grant, signature, content, write_content(&rule.order, raw, content),
            body, body_size,
        )

    cdef bint allow_templated(
        self,
        const Template *template,
        const Text *values,
        const uint8_t *address,
        int32_t address_size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil:
        """Do as `allow_header`, for a header that has matched a template with these
        values.
        """
        cdef uint8_t content[FIELDS_LIMIT]
        cdef Text subject[SUBJECT_LIMIT]
        cdef const Signing *signing = &template.signing
        cdef Grant *grant
        cdef int32_t i
        for i in range(signing.subject_count):
            if signing.subject_holes[i] == NO_HOLE:
                subject[i] = signing.subject[i]
            else:
                subject[i] = values[signing.subject_holes[i]]
        grant = self.find(
            template.frame.code, address, address_size, subject, signing.subject_count
        )
        return grant != NULL and self.verify(
            grant, &values[signing.signature], content,
            write_templated_content(signing, values, content), body, body_size,
        )

    cdef bint allow_call(
        self,
        const Signer *signer,
        int32_t code,
        const uint8_t *address,
        int32_t address_size,
        const Text *names,
        const Text *values,
        int32_t count,
    ) noexcept nogil:
        """True if a permitted user has signed a request with these fields."""
        cdef Text subject[SUBJECT_LIMIT]
        cdef Rule *rule = self.rule_for(code)
        cdef Grant *grant
        cdef int32_t i, j
        if rule == NULL:
            self.unknown += 1
            return False
        memset(subject, 0, SUBJECT_LIMIT * sizeof(Text))
        subject[0] = signer.user
        for i in range(count):
            for j in range(rule.field_count):
                if _is_equal(
                    &names[i], <const char *>rule.fields[j].data, rule.fields[j].size
                ):
                    subject[j + 1] = values[i]
        grant = self.find(code, address, address_size, subject, rule.field_count + 1)
        if grant == NULL:
            return False
        if not signer.is_verified and not is_digest(
            signer.digest, grant.secret, signer.content, signer.content_size
        ):
            self.unsigned += 1
            return False
        self.allowed += 1
        return True

    cdef bint describe_template(
        self, Template *template, const RawHeader *raw, const uint8_t *header
    ) noexcept nogil:
        """Add the signed content to a template, after `allow_header` of its header."""
        cdef Text subject[SUBJECT_LIMIT]
        cdef Signing *signing = &template.signing
        cdef Rule *rule = self.rule_for(raw.code)
        cdef int32_t i
        _find_subject(rule, raw, subject)
        signing.signature = hole_at(template, signature_of(raw).data - header)
        signing.subject_count = rule.field_count + 1
        for i in range(signing.subject_count):
            signing.subject_holes[i] = NO_HOLE
            signing.subject[i] = subject[i]
            if subject[i].data != NULL:
                signing.subject_holes[i] = hole_at(template, subject[i].data - header)
                signing.subject[i].data = template.header + (subject[i].data - header)
        return template_content(template, &rule.order, raw, header)

    cdef Grant *find(
        self,
        int32_t code,
        const uint8_t *address,
        int32_t address_size,
        const Text *subject,
        int32_t subject_count,
    ) noexcept nogil:
        """Return the grant of this user for these resources, or NULL."""
        cdef uint8_t key[KEY_LIMIT + 8]
        cdef uint64_t hash = 0
        cdef int32_t size
        cdef Grant *grant = NULL
        size = _write_key(
            key, code, address, address_size, subject, subject_count, &hash
        )
        if size and subject[0].size:
            grant = self.slot_of(key, size, hash)[0]
        if grant == NULL:
            self.unknown += 1
        return grant

    cdef bint verify(
        self,
        const Grant *grant,
        const Text *signature,
        const uint8_t *content,
        int32_t size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil:
        """True if this is the signature of `size` bytes (-1: unknown) and the body."""
        if signature == NULL or size < 0 or not is_signature(
            signature, grant.secret, content, size, body, body_size
        ):
            self.unsigned += 1
            return False
        self.allowed += 1
        return True


cdef inline int32_t _index_of_code(int32_t code) noexcept nogil:
    """Return the index of a code in `rule_of`, or -1."""
    if 0 <= code < LOW_CODES:
        return code
    if HIGH_CODES_START <= code < HIGH_CODES_START + HIGH_CODES:
        return LOW_CODES + code - HIGH_CODES_START
    return -1


cdef inline bint _is_equal(
    const Text *text, const char *name, int32_t size
) noexcept nogil:
    return text.size == size and memcmp(text.data, name, size) == 0


cdef int32_t _write_key(
    uint8_t *key,
    int32_t code,
    const uint8_t *address,
    int32_t address_size,
    const Text *texts,
    int32_t count,
    uint64_t *hash,
) noexcept nogil:
    """Write a key and its hash; return its size, 0: Python has to decide."""
    cdef int32_t i, size = 4 + address_size
    cdef int16_t part
    cdef uint64_t word, mixed = 0
    if address_size > 16:
        return 0
    memcpy(key, &code, 4)
    memcpy(key + 4, address, address_size)
    for i in range(count):
        if texts[i].escaped or texts[i].size > KEY_LIMIT - 2 - size:
            return 0
        part = <int16_t>texts[i].size if texts[i].data != NULL else -1
        memcpy(key + size, &part, 2)
        size += 2
        if part > 0:
            memcpy(key + size, texts[i].data, part)
            size += part
    memset(key + size, 0, 8)
    size = (size + 7) & ~7
    for i in range(0, size, 8):
        memcpy(&word, key + i, 8)
        mixed = (mixed ^ word) * <uint64_t>0x9E3779B97F4A7C15
        mixed ^= mixed >> 29
    hash[0] = mixed
    return size


cdef void _find_subject(
    const Rule *rule, const RawHeader *raw, Text *subject
) noexcept nogil:
    """Find the values of user and rule fields; the value of an absent field is NULL."""
    cdef int32_t i, j
    memset(subject, 0, SUBJECT_LIMIT * sizeof(Text))
    for i in range(raw.field_count):
        if _is_equal(&raw.names[i], b"AccessKey", 9):
            subject[0] = raw.values[i]
            continue
        for j in range(rule.field_count):
            if _is_equal(
                &raw.names[i], <const char *>rule.fields[j].data, rule.fields[j].size
            ):
                subject[j + 1] = raw.values[i]


@cython.final
cdef class SignedTemplates:
    """One learned header of signed requests at a time, for tests and benchmarks."""

    cdef Grants grants
    cdef list varying
    cdef Template *template

    def __init__(self, Grants grants not None, tuple varying not None):
        self.grants = grants
        self.varying = [name.encode() for name in varying]

    def __dealloc__(self):
        free(self.template)

    def allows(self, bytes frame not None, bytes address not None):
        """Return (has the header matched, may it be served)."""
        cdef RawHeader raw
        cdef Frame values
        cdef Text holes[HOLE_LIMIT]
        cdef int32_t varying[VARYING_LIMIT]
        cdef int32_t i, count = 0
        cdef const uint8_t *header = <const uint8_t *>frame + 8
        cdef int64_t size = get32(header - 4) & 0xFFFFFF
        cdef const uint8_t *body = header + size
        cdef int64_t body_size = len(frame) - 8 - size
        if self.template != NULL and match_template(
            self.template, header, size, &values, holes
        ):
            return True, self.grants.allow_templated(
                self.template, holes, address, <int32_t>len(address), body, body_size
            )
        if not scan_header(header, size, (header - 4)[0], &raw):
            return False, False
        if not self.grants.allow_header(
            &raw, address, <int32_t>len(address), body, body_size
        ):
            return False, False
        values.code = raw.code
        for i in range(raw.field_count):
            if raw.names[i].data[:raw.names[i].size] in self.varying:
                values.fields[count] = raw.values[i]
                varying[count] = count
                count += 1
        free(self.template)
        self.template = learn_template(
            header, size, &raw, &values, count, varying, count, signature_of(&raw), NULL
        )
        if self.template != NULL and not self.grants.describe_template(
            self.template, &raw, header
        ):
            free(self.template)
            self.template = NULL
        return False, True
