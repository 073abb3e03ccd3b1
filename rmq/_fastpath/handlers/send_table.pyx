"""SendTable: registered topics of the compiled sends, and their staged messages.

It has the topics and queues that Python has registered, the constant parts of records
and replies, and the messages of the current poll. The messages are staged in the
encoder. `commit` writes them at the end of the poll; then it adds their queue entries
and publishes. If there are many messages, `commit` writes them earlier. If the log
cannot be written, no message is published. Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcmp, memcpy

from rmq._fastpath.bytes.ascii cimport is_literal, put_literal, put_text
from rmq._fastpath.bytes.find_byte cimport find_byte
from rmq._fastpath.bytes.hashing cimport java_hash_of
from rmq._fastpath.bytes.name_table cimport (
    Name, clear_names, find_name, init_names, insert_name, name_key, remove_name,
)
from rmq._fastpath.bytes.unique_keys cimport UniqueKeys
from rmq._fastpath.handlers.diversion cimport DIVERTED_EXTRA, Diversion
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.log.encode cimport (
    RECORD_CRC_LIMIT, RecordFields, append_record_crc, encode_record, encoded_size,
)
from rmq._fastpath.log.layout cimport RecordLayout
from rmq._fastpath.log.queue_tail cimport QueueTail, TopicWatch
from rmq._fastpath.log.tail cimport LogTail

from rmq._fastpath.handlers.diversion import ADDRESS_NAMES


@cython.final
cdef class SendTopic:
    """A topic as the Python handler has registered it."""

    def __cinit__(
        self, bytes key not None, int32_t flags, int32_t queue_count,
        int64_t once_window_ms,
    ):
        self.key = key
        self.once_window_ms = once_window_ms
        self.queue_count = queue_count
        self.flags = flags
        self.queues = []
        self.watch = TopicWatch()
        self.tails = self.inline_tails
        self.tail_count = INLINE_TAILS

    def __dealloc__(self):
        if self.tails != self.inline_tails:
            free(self.tails)

    cdef int register_queue(self, QueueTail queue) except -1:
        """Register a queue."""
        cdef int32_t wanted = queue.queue_id + 1
        cdef void *grown
        if wanted > self.tail_count:
            wanted = min(max(wanted, 2 * self.tail_count), <int32_t>QUEUE_LIMIT)
            if self.tails != self.inline_tails:
                grown = realloc(self.tails, wanted * sizeof(void *))
            else:
                grown = malloc(wanted * sizeof(void *))
                if grown != NULL:
                    memcpy(grown, self.inline_tails, sizeof(self.inline_tails))
            if grown == NULL:
                raise MemoryError
            self.tails = <void **>grown
            while self.tail_count < wanted:
                self.tails[self.tail_count] = NULL
                self.tail_count += 1
        if self.tails[queue.queue_id] != <void *>queue:
            self.queues.append(queue)
            self.tails[queue.queue_id] = <void *>queue
        return 0


@cython.final
cdef class SendTable:
    """State that the handlers of all send codes share."""

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
        declined_properties,
        dict diversions not None,
        bytes declined_text not None,
        bint waits_for_disk,
        int64_t max_body_size,
        int32_t version,
    ):
        """`facts` are ext fields of every reply, `added` properties of every message.

        `keys` makes the UNIQ_KEY of messages without one.
        Python serves messages with one of the `declined_properties`, and batches with
        an item whose properties contain `declined_text`, unless that is empty.
        `diversions` has the Diversion of each property that needs one.
        """
        self.log = log
        self.now_ms = now_ms
        self.on_failure = on_failure
        self.waits_for_disk = waits_for_disk
        self.max_body_size = max_body_size
        self.version = version
        self.store_host = store_host
        self.added = added
        self.facts = ReplyFields(facts)
        self.topics = {}
        self.declined_text = declined_text
        self.text, self.text_size = self.declined_text, len(declined_text)
        self.diversions = [*diversions.values()]
        self.special_texts = []
        if log.encoder.has_record_crc:  # Python removes a client's own CRC
            self.crc_size = RECORD_CRC_LIMIT
            self.add_special("__CRC32#", DECLINED_NAME, NULL)
        for name in declined_properties:
            self.add_special(name, DECLINED_NAME, NULL)
        for name, diversion in diversions.items():
            self.add_special(name, DIVERTS, <void *><Diversion?>diversion)
        for name in ADDRESS_NAMES if diversions else ():
            self.add_special(name, ADDRESS, NULL)
        self.id_prefix = store_host.hex().upper().encode()
        self.host, self.host_size = store_host, <int32_t>len(store_host)
        self.id_text = self.id_prefix
        self.added_text, self.added_size = self.added, len(added)
        self.keys = keys
        self.extra_size = 1 + len(b"UNIQ_KEY\1") + keys.size + 1 + len(added)
        self.extra_size += self.crc_size
        if diversions:
            self.extra_size += DIVERTED_EXTRA
        init_names(&self.names)
        if not self.reserve_pending(PENDING_LIMIT):
            raise MemoryError

    def __dealloc__(self):
        free(self.names.slots)
        free(self.pending)

    # -- topics

    def register(
        self,
        str topic not None,
        int flags,
        int32_t queue_count,
        QueueTail queue,
        *,
        int64_t once_window_ms=0,
    ):
        """Serve sends to this queue of the topic, if its name and id are in the limits.

        Without a queue serve only messages that are diverted. Python serves a message
        whose key is in the OnceTable, not older than the window. A change or deletion
        of the topic calls `unregister`, so that the table has at most the topics of the
        broker.
        """
        cdef SendTopic known
        cdef bytes key
        if queue is not None and not 0 <= queue.queue_id < QUEUE_LIMIT:
            return
        if once_window_ms and self.once is None:
            raise ValueError(f"a window of {topic} without a table of keys")
        known = self.topics.get(topic)
        if known is None:
            key = name_key([topic])
            if len(key) - 1 > RecordLayout.V1_TOPIC_LIMIT:
                return
            known = SendTopic(key, flags, queue_count, once_window_ms)
            if once_window_ms:
                known.once_hash = self.once.hash_topic(key, len(key) - 1)
            insert_name(&self.names, key, <void *>known)
            self.topics[topic] = known
        if queue is not None:
            known.register_queue(queue)
            known.watch = queue.tails.watch(topic)

    def has_queue(self, str topic not None, int32_t queue_id):
        """True if sends to this queue are served."""
        cdef SendTopic known = self.topics.get(topic)
        return (
            known is not None
            and 0 <= queue_id < known.tail_count
            and known.tails[queue_id] != NULL
        )

    def unregister(self, str topic not None):
        """Leave the topic to the Python handler until it is registered again."""
        cdef SendTopic known = self.topics.pop(topic, None)
        if known is not None:
            remove_name(&self.names, known.key, <void *>known)

    def unregister_all(self):
        """Leave every topic to the Python handler until it is registered again."""
        self.topics.clear()
        clear_names(&self.names)

    cdef void *find_topic(self, const uint8_t *name, int32_t size) noexcept nogil:
        cdef Name wanted
        wanted.data, wanted.size = name, size
        return find_name(&self.names, &wanted, 1)

    # -- one message

    cdef void read_clock(self) noexcept nogil:
        """Read the clock once per poll."""
        with gil:
            self.store_ms = self.now_ms()

    cdef void forget_clock(self) noexcept nogil:
        """Read the clock again for the next message, unless one is staged.

        `commit` forgets the time, but it runs only in polls with staged messages.
        """
        if self.pending_count == 0:
            self.store_ms = 0

    cdef int add_special(self, str text, Meaning meaning, void *diversion) except -1:
        """Set the meaning of a property's name, unless it has one."""
        cdef bytes name = text.encode()
        cdef Special *special = &self.specials[self.special_count]
        if name in self.special_texts:
            return 0
        if self.special_count == SPECIAL_LIMIT:
            raise ValueError(f"more than {SPECIAL_LIMIT} special properties")
        self.special_texts.append(name)
        special.name.data, special.name.size = name, len(name)
        special.meaning = meaning
        special.diversion = diversion
        self.special_sizes[name[0]] |= <uint64_t>1 << (len(name) & 63)
        self.special_count += 1
        return 0

    cdef const Special *special_of(self, const Name *name) noexcept nogil:
        """Return the meaning of a property's name, or NULL."""
        cdef const Special *special
        cdef int32_t i
        if not self.special_sizes[name.data[0]] >> (name.size & 63) & 1:
            return NULL         # almost always
        for i in range(self.special_count):
            special = &self.specials[i]
            if special.name.size == name.size and (
                memcmp(special.name.data, name.data, name.size) == 0
            ):
                return special
        return NULL

    cdef bint read_properties(
        self, const uint8_t *text, int64_t size, Properties *found
    ) noexcept nogil:
        """Read properties; False unless each pair is complete and unique, and compiled
        code serves it.

        The last pair may lack its separator. `seen` has a bit for the size and the last
        two bytes of each name: only names that share a bit are compared.
        """
        cdef Name names[PROPERTY_LIMIT]
        cdef Name *name
        cdef Name value
        cdef int32_t count = 0, i
        cdef uint8_t last
        cdef uint64_t bit, seen = 0
        cdef const uint8_t *end = text + size
        cdef const uint8_t *middle
        cdef const uint8_t *stop
        found.unique_key = NULL
        found.unique_key_size = 0
        found.tags_code = 0
        found.waits = True
        found.diversion = NULL
        found.has_address = False
        while text < end:
            stop = find_byte(text, end, 2)
            if count == PROPERTY_LIMIT:
                return False
            middle = find_byte(text, stop, 1)
            if middle == stop or middle == text or middle + 1 == stop:
                return False
            name = &names[count]
            name.data, name.size = text, middle - text
            last = (middle - 1)[0]
            bit = <uint64_t>1 << (
                (name.size + 31 * last + 7 * name.data[max(name.size, 2) - 2]) & 63
            )
            for i in range(count if seen & bit else 0):
                if names[i].size == name.size and (
                    names[i].data[name.size - 1] == last
                    and memcmp(names[i].data, name.data, name.size) == 0
                ):
                    return False
            seen |= bit
            count += 1
            value.data, value.size = middle + 1, stop - middle - 1
            if not self.read_meaning(name, &value, found):
                return False
            text = stop + 1
        return True

    cdef bint read_meaning(
        self, const Name *name, const Name *value, Properties *found
    ) noexcept nogil:
        """Record the meaning of a property; False: Python has to serve the message."""
        cdef const Special *special = self.special_of(name)
        if special != NULL:
            if special.meaning == ADDRESS:
                found.has_address = True
                return True
            if special.meaning != DIVERTS or found.diversion != NULL:
                return False
            found.diversion = special.diversion
            found.diverting_name, found.diverting_value = name[0], value[0]
        elif is_literal(name.data, name.size, b"TAGS"):
            found.tags_code = java_hash_of(value.data, value.size)
        elif is_literal(name.data, name.size, b"WAIT"):
            found.waits = not is_literal(value.data, value.size, b"false")
            return is_literal(value.data, value.size, b"true") or not found.waits
        elif is_literal(name.data, name.size, b"UNIQ_KEY"):
            if value.size > UNIQUE_KEY_LIMIT:
                return False
            found.unique_key = value.data
            found.unique_key_size = <int32_t>value.size
        return True

    cdef bint end_properties(
        self, RecordFields *fields, Properties *found
    ) noexcept nogil:
        """Add the broker's properties after a text; False if it cannot create a key."""
        cdef uint8_t *start = <uint8_t *>fields.properties
        cdef uint8_t *end = start + fields.properties_size
        if end > start and (end - 1)[0] != 2:
            end = put_literal(end, b"\2")
        if found.unique_key == NULL:
            end = put_literal(end, b"UNIQ_KEY\1")
            if not self.keys.write(end, self.store_ms):
                return False
            found.unique_key = end
            found.unique_key_size = self.keys.size
            end = put_literal(end + self.keys.size, b"\2")
        end = put_text(end, self.added_text, self.added_size)
        fields.properties_size = <int32_t>(end - start)
        return True

    # -- the messages of a poll

    cdef uint8_t *staged_end(self) noexcept nogil:
        """Return where the next record is staged."""
        return self.log.encoder.staging + self.log.encoder.staged_size

    cdef bint has_room(self, int64_t count, int64_t size) noexcept nogil:
        """True if `count` records with `size` bytes in all can be staged."""
        return (
            self.reserve_pending(count)
            and self.log.has_room(size)
            and self.log.encoder.grow(size)
        )

    cdef bint has_room_for(self, void *queue, int64_t size) noexcept nogil:
        """True if one record of a queue can be staged."""
        return self.has_room(1, size) and (<QueueTail>queue).has_room_for(1)

    cdef int64_t encode_next(self, RecordFields *fields, void *queue) noexcept nogil:
        """Encode a record after the others of this poll, with its offsets and time.

        Returns its size. The poll has the record after `stage_encoded`.
        """
        cdef uint8_t *record = self.staged_end()
        cdef int64_t size
        if self.store_ms == 0:
            self.read_clock()
        fields.physical_offset = self.log.next_record_offset()
        fields.queue_offset = (
            (<QueueTail>queue).next_offset + (<QueueTail>queue).staged
        )
        fields.store_ms = self.store_ms
        encode_record(record, fields)
        size = encoded_size(
            fields.topic_size, fields.body_size, fields.properties_size,
            fields.born_host_size + fields.store_host_size,
        )
        if self.crc_size:
            size = append_record_crc(record, size, fields.properties_size)
        return size

    cdef void stage_record(
        self, RecordFields *fields, void *queue, int64_t tags_code
    ) noexcept nogil:
        """Encode a record after the other records of this poll; the end of the poll
        writes them.
        """
        cdef int64_t size = self.encode_next(fields, queue)
        self.stage_encoded(fields, queue, size, tags_code)

    cdef void stage_encoded(
        self, const RecordFields *fields, void *queue, int64_t size, int64_t tags_code
    ) noexcept nogil:
        """Add a record after `encode_next`; the end of the poll writes it."""
        cdef Pending *pending = &self.pending[self.pending_count]
        (<QueueTail>queue).stage()
        self.log.encoder.staged_size += size
        pending.queue = queue
        pending.offset = fields.physical_offset
        pending.size = <int32_t>size
        pending.tags_code = tags_code
        self.pending_count += 1
        self.log.last_store_ms = fields.store_ms

    cdef bint reserve_pending(self, int64_t count) noexcept nogil:
        """Make room for `count` more messages of this poll; False without memory.

        If many earlier messages are staged, it writes them first.
        """
        cdef int64_t wanted
        cdef void *grown
        if self.pending_count >= PENDING_LIMIT and not self.write_pending():
            self.is_lost = True
            return False
        wanted = self.pending_count + count
        if wanted <= self.pending_capacity:
            return True
        wanted = max(wanted, 2 * self.pending_capacity)
        grown = realloc(self.pending, wanted * sizeof(Pending))
        if grown == NULL:
            return False
        self.pending = <Pending *>grown
        self.pending_capacity = wanted
        return True

    cdef bint commit(self) noexcept nogil:
        """End the poll and write its messages; False if a served message was lost."""
        cdef bint is_written = self.write_pending() and not self.is_lost
        self.store_ms = 0
        self.is_lost = False
        self.lost_polls += not is_written
        return is_written

    cdef bint write_pending(self) noexcept nogil:
        """Write and publish the staged messages; False if the write failed."""
        cdef bint is_written = True
        cdef int64_t i
        if self.pending_count == 0:
            return True
        with gil:
            try:
                self.write()
            except OSError as error:
                is_written = False
                self.log.encoder.discard()
                self.on_failure(error)
        for i in range(self.pending_count):
            (<QueueTail>self.pending[i].queue).end_staging()
        self.pending_count = 0
        return is_written

    cdef int write(self) except -1:
        cdef Pending *message
        cdef QueueTail queue
        cdef int64_t i
        cdef int64_t count = self.pending_count
        self.log.write(count)
        for i in range(count):
            if i + 2 * PREFETCH_DISTANCE < count:
                (<QueueTail>self.pending[i + 2 * PREFETCH_DISTANCE].queue).prefetch()
            if i + PREFETCH_DISTANCE < count:
                (<QueueTail>self.pending[i + PREFETCH_DISTANCE].queue).prefetch_entry()
            message = &self.pending[i]
            queue = <QueueTail>message.queue
            queue.publish(message.offset, message.size, message.tags_code)
            if not queue.is_touched:
                self.log.touch(queue)
        return 0
