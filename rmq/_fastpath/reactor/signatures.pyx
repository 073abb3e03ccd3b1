"""Builds the signed content of a request and checks its signature.

A signature is the HMAC-SHA1 over the values of the extension fields in the order of
their names, without `Signature`, then the body; Base64 (rmq/access/signature.py).  The
content is written in one piece, because SHA-1 stalls on bytes just written.  A header
that matches a learned template is not scanned: its signed content consists of the
template's constants and the values in its holes.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy

from rmq._fastpath.reactor.header_scan cimport RawHeader, is_plain, unescape
from rmq._fastpath.reactor.native cimport Text
from rmq._fastpath.reactor.template cimport (
    NO_HOLE, PIECE_LIMIT, Piece, Signing, Template, hole_at,
)

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
    LAST_WITHOUT_UNIQUE_KEY = 399   # rmq/access/signature.py

cdef const char *ALPHABET = (
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
)

rmq_sha1_init()


def hmac_sha1(bytes secret not None, bytes content not None, *, bint plain=False):
    """Sign as `hmac.digest` does; `plain` does not use the CPU's SHA instructions."""
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


cdef void prepare_secret(
    uint32_t *prepared, const uint8_t *secret, size_t size
) noexcept nogil:
    """Convert a user's secret to two states of SHA-1, see hmac_sha1.h."""
    rmq_hmac_prepare(<rmq_hmac_key *>prepared, secret, size)


cdef const Text *signature_of(const RawHeader *raw) noexcept nogil:
    """Return the value of the signature, or NULL."""
    cdef int32_t i
    for i in range(raw.field_count):
        if _is_equal(&raw.names[i], b"Signature", 9):
            return &raw.values[i]
    return NULL


cdef int32_t write_content(
    FieldOrder *order, const RawHeader *raw, uint8_t *content
) noexcept nogil:
    """Write the signed values and return their size; -1: Python has to check."""
    cdef int32_t i, size = 0
    cdef const Text *text
    if not _is_ordered(order, raw) and not _find_order(order, raw):
        return -1
    for i in range(order.count):
        text = &raw.values[order.places[i]]
        if text.size > FIELDS_LIMIT - size:
            return -1
        size += unescape(content + size, text)
    return size


cdef int32_t write_templated_content(
    const Signing *signing, const Text *values, uint8_t *content
) noexcept nogil:
    """Do as `write_content`, from a template's constants and the values in its holes.
    """
    cdef int32_t i, size = 0
    cdef const uint8_t *constant = signing.constants
    cdef const Piece *piece
    cdef const Text *text
    for i in range(signing.piece_count):
        piece = &signing.pieces[i]
        if piece.hole == NO_HOLE:
            if piece.size > FIELDS_LIMIT - size:
                return -1
            memcpy(content + size, constant, piece.size)
            constant += piece.size
            size += piece.size
        else:
            text = &values[piece.hole]
            if text.size > FIELDS_LIMIT - size:
                return -1
            size += unescape(content + size, text)
    return size


cdef bint template_content(
    Template *template, const FieldOrder *order, const RawHeader *raw,
    const uint8_t *header,
) noexcept nogil:
    """Divide a learned header's signed content into constants and holes.

    `order` is the order of the fields in `raw`.
    """
    cdef Signing *signing = &template.signing
    cdef uint8_t *constants = template.header + template.size
    cdef uint8_t *end = constants
    cdef Piece *piece = NULL
    cdef const Text *text
    cdef int32_t i, hole, size
    signing.constants = constants
    signing.piece_count = 0
    for i in range(order.count):
        text = &raw.values[order.places[i]]
        hole = hole_at(template, text.data - header)
        if piece == NULL or hole != NO_HOLE or piece.hole != NO_HOLE:
            if signing.piece_count == PIECE_LIMIT:
                return False
            piece = &signing.pieces[signing.piece_count]
            signing.piece_count += 1
            piece.hole = hole
            piece.size = 0
        if hole == NO_HOLE:
            size = unescape(end, text)
            piece.size += size
            end += size
    return True


cdef bint is_digest(
    const uint8_t *digest, const uint32_t *secret, const uint8_t *content, int64_t size
) noexcept nogil:
    """Compare a signature of 20 bytes with the computed one, in constant time."""
    cdef rmq_sha1 sha
    cdef uint8_t computed[DIGEST_SIZE]
    cdef uint8_t differs = 0
    cdef int32_t i
    rmq_hmac_start(&sha, <const rmq_hmac_key *>secret)
    rmq_sha1_add(&sha, content, size)
    rmq_hmac_end(&sha, <const rmq_hmac_key *>secret, computed)
    for i in range(DIGEST_SIZE):
        differs |= digest[i] ^ computed[i]
    return differs == 0


cdef bint is_signature(
    const Text *signature,
    const uint32_t *secret,
    const uint8_t *content,
    int32_t size,
    const uint8_t *body,
    int64_t body_size,
) noexcept nogil:
    """Compare the request's signature with the computed one, in constant time."""
    cdef rmq_sha1 sha
    cdef uint8_t digest[DIGEST_SIZE + 1]
    cdef uint8_t differs = 0
    cdef uint32_t group
    cdef int32_t i, j
    if signature.size != SIGNATURE_SIZE or signature.escaped:
        return False
    rmq_hmac_start(&sha, <const rmq_hmac_key *>secret)
    rmq_sha1_add(&sha, content, size)
    rmq_sha1_add(&sha, body, body_size)
    rmq_hmac_end(&sha, <const rmq_hmac_key *>secret, digest)
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


cdef inline bint _is_equal(
    const Text *text, const char *name, int32_t size
) noexcept nogil:
    return text.size == size and memcmp(text.data, name, size) == 0


cdef inline bint _is_before(const Text *one, const Text *other) noexcept nogil:
    cdef int32_t size = min(one.size, other.size)
    cdef int compared = memcmp(one.data, other.data, size)
    return compared < 0 or (compared == 0 and one.size < other.size)


cdef bint _is_ordered(const FieldOrder *order, const RawHeader *raw) noexcept nogil:
    """True if the order of the last request's fields is right for this request, too."""
    cdef int32_t i
    cdef const Text *name
    cdef const Text *last = NULL
    if order.count == 0 or order.count != raw.field_count - 1:
        return False
    for i in range(order.count):
        name = &raw.names[order.places[i]]
        if not is_plain(name.data, name.size) or _is_equal(name, b"Signature", 9):
            return False
        if _is_unsigned(raw, name) or (last != NULL and not _is_before(last, name)):
            return False
        last = name
    return True


cdef bint _find_order(FieldOrder *order, const RawHeader *raw) noexcept nogil:
    """Sort the signed fields by name; False: Python has to check."""
    cdef int32_t i, j, count = 0
    for i in range(raw.field_count):
        if _is_equal(&raw.names[i], b"Signature", 9):
            continue
        if not is_plain(raw.names[i].data, raw.names[i].size):
            return False
        if _is_unsigned(raw, &raw.names[i]):
            return False
        j = count
        while j > 0 and _is_before(&raw.names[i], &raw.names[order.places[j - 1]]):
            order.places[j] = order.places[j - 1]
            j -= 1
        order.places[j] = i
        count += 1
    order.count = count
    return True


cdef inline bint _is_unsigned(const RawHeader *raw, const Text *name) noexcept nogil:
    """True if an old client does not sign this field."""
    return (
        raw.version <= LAST_WITHOUT_UNIQUE_KEY
        and _is_equal(name, b"_UNIQUE_KEY_QUERY", 17)
    )
