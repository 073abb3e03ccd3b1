"""SendTable: what the compiled sends know and have staged.

Topics and queues that the Python handler has shown, the constant parts of records and
replies, and the messages of the poll that is going on.  They are staged in the encoder;
`commit` writes them at the end of the poll, then their queue entries, then publishes.
If the log cannot be written nothing is published.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

from rmq._fastpath.append cimport RecordFields
from rmq._fastpath.hashing cimport java_hash_of
from rmq._fastpath.header_text cimport put_text
from rmq._fastpath.layout cimport RecordLayout
from rmq._fastpath.tail cimport LogTail, QueueTail
from rmq._fastpath.unique_keys cimport UniqueKeys

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>
    #ifdef __SSE2__
    #include <emmintrin.h>
    #endif
    /* memchr, but `end` if there is none: without a call, for bytes that are near. */
    static inline const uint8_t *rmq_find_byte(
            const uint8_t *p, const uint8_t *end, uint8_t byte) {
    #ifdef __SSE2__
        const __m128i wanted = _mm_set1_epi8((char)byte);
        for (; end - p >= 16; p += 16) {
            __m128i part = _mm_loadu_si128((const __m128i *)p);
            int mask = _mm_movemask_epi8(_mm_cmpeq_epi8(part, wanted));
            if (mask) return p + __builtin_ctz(mask);
        }
    #endif
        while (p < end && *p != byte) p++;
        return p;
    }
    """
    const uint8_t *rmq_find_byte(
        const uint8_t *p, const uint8_t *end, uint8_t byte
    ) noexcept nogil

cdef enum:
    FACTS_LIMIT = 256           # bytes of facts, so that a reply fits its room


cdef uint32_t _hash(const uint8_t *data, int64_t size) noexcept nogil:
    """FNV-1a."""
    cdef uint32_t value = 2166136261
    cdef int64_t i
    for i in range(size):
        value = (value ^ data[i]) * 16777619
    return value


@cython.final
cdef class SendTopic:
    """A topic as the Python handler last saw it."""

    def __cinit__(self, bytes name not None, int32_t queue_count, int32_t flags):
        self.name = name
        self.text = name
        self.size = <int32_t>len(name)
        self.hash = _hash(name, len(name))
        self.queue_count = queue_count
        self.flags = flags
        self.queues = []
        self.tails = <void **>calloc(queue_count, sizeof(void *))
        if self.tails == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.tails)


@cython.final
cdef class SendTable:
    """What the handlers of all send codes share."""

    def __cinit__(
        self,
        LogTail log not None,
        *,
        now_ms,
        on_failure,
        bytes store_host not None,
        dict facts not None,
        bytes added not None,
        UniqueKeys keys not None,
        specials,
        bint waits_for_disk,
        int64_t max_body_size,
        int32_t version,
    ):
        """`facts` are ext fields of every reply, `added` properties of every message.

        `keys` makes the UNIQ_KEY of those without one.
        `specials` are names of properties whose messages are not for this path.
        """
        self.log = log
        self.now_ms = now_ms
        self.on_failure = on_failure
        self.waits_for_disk = waits_for_disk
        self.max_body_size = max_body_size
        self.version = version
        self.store_host = store_host
        self.added = added
        self.facts = b"".join(
            f',"{name}":"{value}"'.encode() for name, value in facts.items()
        )
        self.binary_facts = b"".join(
            len(name).to_bytes(2, "big") + name.encode()
            + len(value).to_bytes(4, "big") + value.encode()
            for name, value in facts.items()
        )
        if len(self.facts) > FACTS_LIMIT or len(self.binary_facts) > FACTS_LIMIT:
            raise ValueError(f"{facts} are too long for a reply")
        self.topics = {}
        self.specials = [name.encode() for name in specials]
        if len(self.specials) > SPECIAL_LIMIT:
            raise ValueError(f"{len(self.specials)} special properties")
        for i, name in enumerate(self.specials):
            self.special_names[i].data = <bytes>name
            self.special_names[i].size = len(name)
            self.special_sizes[(<bytes>name)[0]] |= <uint64_t>1 << (len(name) & 63)
        self.special_count = len(self.specials)
        self.id_prefix = store_host.hex().upper().encode()
        self.host, self.host_size = store_host, <int32_t>len(store_host)
        self.id_text = self.id_prefix
        self.added_text, self.added_size = self.added, len(added)
        self.keys = keys
        self.extra_size = 1 + len(b"UNIQ_KEY\1") + keys.size + 1 + len(added)
        self.facts_text, self.facts_size = self.facts, len(self.facts)
        self.binary_facts_text = self.binary_facts
        self.binary_facts_size = len(self.binary_facts)
        self.slots = <void **>calloc(SLOT_COUNT, sizeof(void *))
        self.pending = <Pending *>malloc(PENDING_LIMIT * sizeof(Pending))
        if self.slots == NULL or self.pending == NULL:
            raise MemoryError

    def __dealloc__(self):
        free(self.slots)
        free(self.pending)

    # -- topics

    def learn(self, str topic not None, int queue_count, int flags, QueueTail queue):
        """Serve sends to this queue of the topic from now on, if it is an ordinary one.

        Whoever changes the topic or deletes it calls `forget`.  ValueError beyond 8,192
        topics.
        """
        cdef SendTopic known
        cdef bytes name = topic.encode()
        if len(name) > RecordLayout.V1_TOPIC_LIMIT or queue is None:
            return
        if not 0 <= queue.queue_id < queue_count <= QUEUE_LIMIT:
            return
        known = self.topics.get(name)
        if known is None:
            if len(self.topics) >= TOPIC_LIMIT:
                raise ValueError(f"more than {TOPIC_LIMIT} topics")
            known = self.topics[name] = SendTopic(name, queue_count, flags)
            self.insert(known)
        if known.tails[queue.queue_id] != <void *>queue:
            known.queues.append(queue)
            known.tails[queue.queue_id] = <void *>queue

    def forget(self, str topic not None):
        """Leave the topic to the Python handler until it is shown again."""
        if self.topics.pop(topic.encode(), None) is not None:
            self.rebuild()

    def forget_all(self):
        """Leave every topic to the Python handler until it is shown again."""
        self.topics.clear()
        self.rebuild()

    cdef int rebuild(self) except -1:
        cdef SendTopic topic
        memset(self.slots, 0, SLOT_COUNT * sizeof(void *))
        for topic in self.topics.values():
            self.insert(topic)
        return 0

    cdef int insert(self, SendTopic topic) except -1:
        cdef uint32_t i = topic.hash % SLOT_COUNT
        while self.slots[i] != NULL:
            i = (i + 1) % SLOT_COUNT
        self.slots[i] = <void *>topic
        return 0

    cdef void *find_topic(self, const uint8_t *name, int32_t size) noexcept nogil:
        cdef uint32_t hashed = _hash(name, size)
        cdef uint32_t i = hashed % SLOT_COUNT
        while self.slots[i] != NULL:
            if (
                (<SendTopic>self.slots[i]).hash == hashed
                and (<SendTopic>self.slots[i]).size == size
                and memcmp((<SendTopic>self.slots[i]).text, name, size) == 0
            ):
                return self.slots[i]
            i = (i + 1) % SLOT_COUNT
        return NULL

    # -- one message

    cdef void read_clock(self) noexcept nogil:
        """Read the clock once per poll."""
        with gil:
            self.store_ms = self.now_ms()

    cdef bint is_special(self, const uint8_t *name, int64_t size) noexcept nogil:
        cdef int32_t i
        if not self.special_sizes[name[0]] >> (size & 63) & 1:
            return False        # almost always
        for i in range(self.special_count):
            if self.special_names[i].size == size and (
                memcmp(self.special_names[i].data, name, size) == 0
            ):
                return True
        return False

    cdef bint read_properties(
        self, const uint8_t *text, int64_t size, Properties *found
    ) noexcept nogil:
        """Read a text in which every pair is whole, once and without a meaning here.

        The last pair may lack its end.
        """
        cdef Name names[PROPERTY_LIMIT]
        cdef int32_t count = 0, i, name_size
        cdef int64_t value_size
        cdef const uint8_t *end = text + size
        cdef const uint8_t *middle
        cdef const uint8_t *stop
        found.unique_key = NULL
        found.unique_key_size = 0
        found.tags_code = 0
        found.waits = True
        while text < end:
            stop = rmq_find_byte(text, end, 2)
            if count == PROPERTY_LIMIT:
                return False
            middle = rmq_find_byte(text, stop, 1)
            if middle == stop or middle == text or middle + 1 == stop:
                return False
            name_size = <int32_t>(middle - text)
            value_size = stop - middle - 1
            if self.is_special(text, name_size):
                return False
            for i in range(count):
                if names[i].size == name_size and (
                    memcmp(names[i].data, text, name_size) == 0
                ):
                    return False
            names[count].data = text
            names[count].size = name_size
            count += 1
            if name_size == 4:
                if memcmp(text, b"TAGS", 4) == 0:
                    found.tags_code = java_hash_of(middle + 1, value_size)
                elif memcmp(text, b"WAIT", 4) == 0:
                    if value_size != 4 or memcmp(middle + 1, b"true", 4) != 0:
                        if value_size != 5 or memcmp(middle + 1, b"false", 5) != 0:
                            return False
                        found.waits = False
            elif name_size == 8 and memcmp(text, b"UNIQ_KEY", 8) == 0:
                if value_size > UNIQUE_KEY_LIMIT:
                    return False
                found.unique_key = middle + 1
                found.unique_key_size = <int32_t>value_size
            text = stop + 1
        return True

    cdef bint end_properties(
        self, RecordFields *fields, Properties *found
    ) noexcept nogil:
        """Write what the broker adds behind a text; False if it can make no key."""
        cdef uint8_t *start = <uint8_t *>fields.properties
        cdef uint8_t *end = start + fields.properties_size
        if end > start and (end - 1)[0] != 2:
            end = put_text(end, b"\2", 1)
        if found.unique_key == NULL:
            end = put_text(end, b"UNIQ_KEY\1", 9)
            if not self.keys.write(end, self.store_ms):
                return False
            found.unique_key = end
            found.unique_key_size = self.keys.size
            end = put_text(end + self.keys.size, b"\2", 1)
        end = put_text(end, self.added_text, self.added_size)
        fields.properties_size = <int32_t>(end - start)
        return True

    # -- the end of a poll

    cdef bint commit(self) noexcept nogil:
        """Write what is staged and publish it; False if nothing of it was kept."""
        cdef bint is_kept = True
        cdef int32_t i
        self.store_ms = 0
        if self.pending_count == 0:
            return True
        with gil:
            try:
                self.write()
            except OSError as error:
                is_kept = False
                self.log.encoder.discard()
                self.on_failure(error)
        for i in range(self.pending_count):
            (<QueueTail>self.pending[i].queue).end_staging()
        self.pending_count = 0
        return is_kept

    cdef int write(self) except -1:
        cdef Pending *message
        cdef QueueTail queue
        cdef int32_t i
        self.log.write(self.pending_count)
        for i in range(self.pending_count):
            message = &self.pending[i]
            queue = <QueueTail>message.queue
            queue.publish(message.offset, message.size, message.tags_code)
            if not queue.is_touched:
                self.log.touch(queue)
        return 0
