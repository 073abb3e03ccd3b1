"""The keys of a record, in the order of their entries, and their hashes.

A key text is `topic#key`, or `topic#T#tags`; its hash is abs(Java hash). The keys of a
record are its UNIQ_KEY, each part of KEYS between spaces, then its TAGS.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp

from rmq._fastpath.bytes.hashing cimport java_hash_on

cdef struct RecordKeys:
    const uint8_t *unique
    const uint8_t *keys
    const uint8_t *tags
    int64_t unique_size
    int64_t keys_size
    int64_t tags_size
    int stage
    int64_t at          # position in `keys`


cdef inline void find_keys(
    const uint8_t *p, int64_t size, RecordKeys *found
) noexcept nogil:
    """Find the last UNIQ_KEY, KEYS and TAGS that are not empty."""
    cdef const uint8_t *end = p + size
    cdef const uint8_t *stop
    found.unique_size = found.keys_size = found.tags_size = 0
    found.stage = 0
    found.at = 0
    while p < end:
        stop = <const uint8_t *>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        if stop - p > 5 and memcmp(p, b"TAGS\x01", 5) == 0:
            found.tags = p + 5
            found.tags_size = stop - found.tags
        elif stop - p > 5 and memcmp(p, b"KEYS\x01", 5) == 0:
            found.keys = p + 5
            found.keys_size = stop - found.keys
        elif stop - p > 9 and memcmp(p, b"UNIQ_KEY\x01", 9) == 0:
            found.unique = p + 9
            found.unique_size = stop - found.unique
        p = stop + 1


cdef inline bint next_key(
    RecordKeys *found, const uint8_t **key, int64_t *size, bint *is_tags
) noexcept nogil:
    """Get the next key in the order of entries; False after the last."""
    cdef int64_t start
    is_tags[0] = False
    if found.stage == 0:
        found.stage = 1
        if found.unique_size:
            key[0] = found.unique
            size[0] = found.unique_size
            return True
    if found.stage == 1:
        while found.at < found.keys_size:
            start = found.at
            while found.at < found.keys_size and found.keys[found.at] != c" ":
                found.at += 1
            key[0] = found.keys + start
            size[0] = found.at - start
            found.at += 1
            if size[0]:
                return True
        found.stage = 2
    if found.stage == 2:
        found.stage = 3
        if found.tags_size:
            key[0] = found.tags
            size[0] = found.tags_size
            is_tags[0] = True
            return True
    return False


cdef inline int32_t topic_hash_of(
    const uint8_t *topic, int64_t size
) noexcept nogil:
    """Return the hash of `topic#`, with which all key texts of a topic begin."""
    return java_hash_on(java_hash_on(0, topic, size), b"#", 1)


cdef inline int32_t key_hash_of(
    int32_t topic_hash, const uint8_t *key, int64_t size, bint is_tags
) noexcept nogil:
    """Return the hash of an entry, never below 0."""
    cdef int32_t value = topic_hash
    if is_tags:
        value = java_hash_on(value, b"T#", 2)
    value = java_hash_on(value, key, size)
    if value == <int32_t>0x80000000:
        return 0
    return -value if value < 0 else value
