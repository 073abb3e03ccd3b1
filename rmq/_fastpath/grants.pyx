"""Grants: what a guard in Python has allowed, so that compiled handlers may repeat it.

A grant says that a user may send requests of one code about some resources from one
address, and has the key of the user's signatures.  A guard teaches it after it let such
a request pass.  `allow` finds the grant of a later request and checks its signature:
HMAC-SHA1 over the values of the extension fields in the order of their names, without
`Signature`, then the body; Base64.  It may give up, never differ: what is unknown, not
signed or hard to read is left to Python, where the guard decides and words the refusal.

Invariant: whoever changes users or policies calls `forget` before the next poll.

Key: i32 code, address, then user and the value of each field of the rule, each as i16
size and bytes; -1 for a field that is absent.  Padded with zeros to whole words.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from rmq._fastpath.endian cimport get32
from rmq._fastpath.header_scan cimport RawHeader, is_plain, scan_header, unescape
from rmq._fastpath.native cimport Text

cdef extern from "hmac_sha1.h" nogil:
    ctypedef struct rmq_hmac_key:
        pass
    ctypedef struct rmq_sha1:
        pass
    int rmq_sha1_has_instructions
    void rmq_sha1_init()
    void rmq_sha1_add(rmq_sha1 *sha, const uint8_t *data, size_t size)
    void rmq_hmac_prepare(rmq_hmac_key *key, const uint8_t *secret, size_t size)
    void rmq_hmac_start(rmq_sha1 *sha, const rmq_hmac_key *key)
    void rmq_hmac_end(rmq_sha1 *sha, const rmq_hmac_key *key, uint8_t *digest)

cdef enum:
    DIGEST_SIZE = 20
    SIGNATURE_SIZE = 28         # Base64 of a digest
    FIELDS_LIMIT = 8192         # bytes of all values; larger requests go to Python
    LAST_WITHOUT_UNIQUE_KEY = 399   # rmq/access/signature.py

cdef const char *ALPHABET = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)

rmq_sha1_init()


def hmac_sha1(bytes secret not None, bytes content not None, *, bint plain=False):
    """Sign as `hmac.digest` does; `plain` leaves out the instructions of the CPU."""
    global rmq_sha1_has_instructions
    cdef rmq_hmac_key key
    cdef rmq_sha1 sha
    cdef uint8_t digest[DIGEST_SIZE]
    cdef int known = rmq_sha1_has_instructions
    if plain:
        rmq_sha1_has_instructions = 0
    rmq_hmac_prepare(&key, secret, len(secret))
    rmq_hmac_start(&sha, &key)
    rmq_sha1_add(&sha, content, len(content))
    rmq_hmac_end(&sha, &key, digest)
    rmq_sha1_has_instructions = known
    return digest[:DIGEST_SIZE]


@cython.final
cdef class Grants:
    """Grants of a broker; `rules` has the fields that decide, by request code."""

    def __cinit__(self, dict rules not None):
        cdef bytes name
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
            if not 0 <= code < RULE_CODES:
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
            self.rule_of[code] = index + 1
        self.names = tuple(names)

    def __dealloc__(self):
        if self.slots != NULL:
            self.forget()
        free(self.slots)
        free(self.rules)

    def __len__(self):
        return self.count

    def forget(self):
        """Forget all: users or policies have changed."""
        cdef int32_t i
        for i in range(SLOT_COUNT):
            free(self.slots[i])
            self.slots[i] = NULL
        self.count = 0

    def learn(
        self,
        int code,
        bytes address not None,
        str user not None,
        str secret not None,
        tuple values not None,
    ):
        """Allow what the guard has just allowed; `values` as the rule's fields.

        `address` is that of the peer without its port.  A code without a rule, and
        names that are too long, are ignored.
        """
        cdef Text texts[RULE_FIELD_LIMIT + 1]
        cdef uint8_t key[KEY_LIMIT + 8]
        cdef uint64_t hash = 0
        cdef int32_t size, count = len(values)
        cdef Grant **place
        cdef Grant *grant
        cdef bytes part, known = secret.encode()
        if not 0 <= code < RULE_CODES or not self.rule_of[code]:
            return
        if count != self.rules[self.rule_of[code] - 1].field_count:
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
        if self.place(key, size, hash)[0] != NULL:
            return
        if self.count == GRANT_LIMIT:
            self.forget()
        grant = <Grant *>malloc(sizeof(Grant) + size)
        if grant == NULL:
            raise MemoryError
        grant.hash = hash
        grant.key_size = size
        memcpy(grant.key, key, size)
        rmq_hmac_prepare(<rmq_hmac_key *>grant.secret, known, len(known))
        place = self.place(key, size, hash)
        place[0] = grant
        self.count += 1

    def allows(self, bytes frame not None, bytes address not None):
        """Whether an encoded request would be served; for tests and benchmarks."""
        cdef RawHeader raw
        cdef const uint8_t *p = frame
        cdef int64_t size = len(frame)
        cdef int64_t header_size = get32(p + 4) & 0xFFFFFF
        return scan_header(p + 8, header_size, p[4], &raw) and self.allow(
            &raw, address, <int32_t>len(address), p + 8 + header_size,
            size - 8 - header_size,
        )

    cdef Grant **place(
        self, const uint8_t *key, int32_t size, uint64_t hash
    ) noexcept nogil:
        """Where the grant with this key is, or would be: half of the slots are free."""
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

    cdef bint allow(
        self,
        const RawHeader *raw,
        const uint8_t *address,
        int32_t address_size,
        const uint8_t *body,
        int64_t body_size,
    ) noexcept nogil:
        """Whether a user who may send this request has signed it."""
        cdef uint8_t key[KEY_LIMIT + 8]
        cdef Text texts[RULE_FIELD_LIMIT + 1]
        cdef Text signature
        cdef Rule *rule
        cdef Grant *grant
        cdef uint64_t hash = 0
        cdef int32_t i, j, size
        if not 0 <= raw.code < RULE_CODES or not self.rule_of[raw.code]:
            self.unknown += 1
            return False
        rule = &self.rules[self.rule_of[raw.code] - 1]
        memset(texts, 0, sizeof(texts))
        memset(&signature, 0, sizeof(signature))
        for i in range(raw.field_count):
            if _is(&raw.names[i], b"AccessKey", 9):
                texts[0] = raw.values[i]
            elif _is(&raw.names[i], b"Signature", 9):
                signature = raw.values[i]
            else:
                for j in range(rule.field_count):
                    if _is(
                        &raw.names[i], <const char *>rule.fields[j].data,
                        rule.fields[j].size,
                    ):
                        texts[j + 1] = raw.values[i]
        size = _write_key(
            key, raw.code, address, address_size, texts, rule.field_count + 1, &hash
        )
        grant = self.place(key, size, hash)[0] if size and texts[0].size else NULL
        if grant == NULL:
            self.unknown += 1
            return False
        if not _is_signed(
            rule, raw, &signature, <const rmq_hmac_key *>grant.secret, body, body_size
        ):
            self.unsigned += 1
            return False
        self.allowed += 1
        return True


cdef inline bint _is(const Text *text, const char *name, int32_t size) noexcept nogil:
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
    """Write a key and its hash; return its size, 0 for what is left to Python."""
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


cdef bint _is_signed(
    Rule *rule,
    const RawHeader *raw,
    const Text *signature,
    const rmq_hmac_key *secret,
    const uint8_t *body,
    int64_t body_size,
) noexcept nogil:
    """Compare the request's signature with the right one, in constant time."""
    cdef rmq_sha1 sha
    cdef uint8_t digest[DIGEST_SIZE + 1]
    cdef uint8_t fields[FIELDS_LIMIT]
    cdef uint8_t differs = 0
    cdef uint32_t group
    cdef int32_t i, j, size = 0
    cdef const Text *text
    if signature.size != SIGNATURE_SIZE or signature.escaped:
        return False
    if not _is_ordered(rule, raw) and not _find_order(rule, raw):
        return False
    for i in range(rule.order_count):   # one piece: SHA-1 waits for bytes just written
        text = &raw.values[rule.order[i]]
        if text.size > FIELDS_LIMIT - size:
            return False
        size += unescape(fields + size, text)
    rmq_hmac_start(&sha, secret)
    rmq_sha1_add(&sha, fields, size)
    rmq_sha1_add(&sha, body, body_size)
    rmq_hmac_end(&sha, secret, digest)
    digest[DIGEST_SIZE] = 0
    for i in range(DIGEST_SIZE // 3 + 1):
        group = (
            <uint32_t>digest[3 * i] << 16 | <uint32_t>digest[3 * i + 1] << 8
            | digest[3 * i + 2]
        )
        for j in range(4):
            if 4 * i + j < SIGNATURE_SIZE - 1:
                differs |= (
                    <uint8_t>ALPHABET[group >> (18 - 6 * j) & 63]
                    ^ signature.data[4 * i + j]
                )
    differs |= signature.data[SIGNATURE_SIZE - 1] ^ 61      # "="
    return differs == 0


cdef inline bint _is_before(const Text *one, const Text *other) noexcept nogil:
    cdef int32_t size = min(one.size, other.size)
    cdef int compared = memcmp(one.data, other.data, size)
    return compared < 0 or (compared == 0 and one.size < other.size)


cdef bint _is_ordered(const Rule *rule, const RawHeader *raw) noexcept nogil:
    """Whether the order of the last request is right for this one, too."""
    cdef int32_t i
    cdef const Text *name
    cdef const Text *last = NULL
    if rule.order_count == 0 or rule.order_count != raw.field_count - 1:
        return False
    for i in range(rule.order_count):
        name = &raw.names[rule.order[i]]
        if not is_plain(name.data, name.size) or _is(name, b"Signature", 9):
            return False
        if _is_left_out(raw, name) or (last != NULL and not _is_before(last, name)):
            return False
        last = name
    return True


cdef bint _find_order(Rule *rule, const RawHeader *raw) noexcept nogil:
    """Sort the fields that are signed; False if that is left to Python."""
    cdef int32_t i, j, count = 0
    for i in range(raw.field_count):
        if _is(&raw.names[i], b"Signature", 9):
            continue
        if not is_plain(raw.names[i].data, raw.names[i].size):
            return False
        if _is_left_out(raw, &raw.names[i]):
            return False
        j = count
        while j > 0 and _is_before(&raw.names[i], &raw.names[rule.order[j - 1]]):
            rule.order[j] = rule.order[j - 1]
            j -= 1
        rule.order[j] = i
        count += 1
    rule.order_count = count
    return True


cdef inline bint _is_left_out(const RawHeader *raw, const Text *name) noexcept nogil:
    """Whether an old client does not sign this field."""
    return (
        raw.version <= LAST_WITHOUT_UNIQUE_KEY and _is(name, b"_UNIQUE_KEY_QUERY", 17)
    )
