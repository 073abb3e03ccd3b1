"""SendBackPath: request 36, a message that a consumer gives back, without Python
objects.

The record at the physical offset is stored again, in the queue of its delay level and
addressed to the retry topic of the group. After the last attempt it goes to the group's
dead-letter topic. Python registers a group and the queue of a record after it has
served a message. It serves other groups and queues, records that are not in memory or
not plain, and properties with a meaning. Both ways store the same bytes. An offset from
a client proves nothing: the queue of the record must have an entry with this offset.
Properties of a retry, where a new one comes after the others of the message:

    RETRY_TOPIC, ORIGIN_MESSAGE_ID      the first topic and message id
    WAIT, DELAY                         false, the level
    REAL_TOPIC, REAL_QID                the retry topic and its queue

A dead letter has DELAY 0 and gets no address. Belongs to the thread of the reactor.
"""

# tidy: long — one request from its frame to its record
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rmq._fastpath.bytes.ascii cimport (
    is_literal, put_integer, put_literal, put_text,
)
from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.bytes.find_byte cimport find_byte
from rmq._fastpath.bytes.name_table cimport Name, contains_name
from rmq._fastpath.bytes.utf8 cimport is_utf8
from rmq._fastpath.handlers.diversion cimport DIVERTED, DelayedSends
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.encode cimport encoded_size, tags_code_of
from rmq._fastpath.log.layout cimport QueueEntryLayout, RecordLayout
from rmq._fastpath.log.mapped_file cimport BLOCKS_RIGHT, PAGES_UNKNOWN, MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.waiters cimport wake_waiters
from rmq._fastpath.reactor.header_text cimport (
    ONEWAY_FLAG, is_unset, put_success, read_integer,
)
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, SERVED, WAITS, Conn, Frame, NativeHandler, Text,
    Verdict, decline,
)

cdef const char *DIGITS = "0123456789ABCDEF"

cdef enum:
    GROUP = 0
    OFFSET = 1
    LEVEL = 2
    ORIGIN_ID_FIELD = 3
    ORIGIN_TOPIC = 4
    UNIT_MODE = 5
    MAX_RECONSUME_TIMES = 6

cdef enum:
    FIRST_LEVEL = 3             # level of the first retry, if the consumer names none
    LIMIT_SINCE = 121           # first client version whose limit of attempts is used
    PLAIN_FLAGS = 0x73B         # tags, compression, a commit, IPv6 hosts
    PAIR_LIMIT = 64             # maximum properties of a message
    PAGE_SIZE = 4096
    KEY_LIMIT = 512             # maximum bytes of a queue's key
    OWN_SIZE = 192              # bytes of the own properties, without two topics

cdef enum Reason:
    HEADER = 0
    GROUP_UNKNOWN = 1
    RECORD = 2
    PROPERTY = 3
    PLACE = 4
    ROOM = 5
    REFUSING = 6

NAMES = (
    "group", "offset", "delayLevel", "originMsgId", "originTopic", "unitMode",
    "maxReconsumeTimes",
)
VARYING = ("offset", "delayLevel", "originMsgId", "originTopic")
REASONS = (
    "header", "group", "record", "properties", "level or dead-letter queue", "room",
    "store refuses",
)


cdef class BackGroup:
    """A consumer group, as the Python handler has registered it."""


@cython.final
cdef class SendBackPath(NativeHandler):
    """Serves request 36 CONSUMER_SEND_MSG_BACK."""

    def __init__(
        self, SendTable table not None, LogReader reader not None, Watermark visible,
        DelayedSends delayed, *, declined not None, choose_queue not None,
        on_stored not None, int32_t version,
    ):
        """Python serves messages with one of the `declined` properties.

        `choose_queue(n)` returns a number below n. `on_stored(messages)` gets
        [(group, topic, is_dead)] of the messages that a poll has written.
        """
        cdef bytes name
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.table, self.reader, self.visible = table, reader, visible
        self.delayed = delayed
        self.choose_queue, self.on_stored = choose_queue, on_stored
        self.version = version
        self.groups, self.sources = {}, {}
        self.stored = []
        self.declined = [each.encode() for each in declined]
        if len(self.declined) > DECLINED_LIMIT:
            raise ValueError(f"more than {DECLINED_LIMIT} declined properties")
        for name in self.declined:
            self.names[self.name_count].data = name
            self.names[self.name_count].size = len(name)
            self.name_count += 1

    # -- what Python has registered

    def register_group(
        self, str name not None, str retry_topic not None, *, int64_t queue_count,
        int64_t limit, QueueTail dead_letters,
    ):
        """Serve messages of a group: `limit` attempts, then a dead letter.

        `queue_count` queues of the retry topic are used. Without a queue of dead
        letters Python stores the next one.
        """
        cdef BackGroup group = BackGroup()
        group.name, group.retry_topic = name, retry_topic.encode()
        group.retry, group.retry_size = group.retry_topic, len(group.retry_topic)
        group.queue_count, group.limit = queue_count, limit
        group.dead_letters = dead_letters
        if dead_letters is not None:
            group.dead = dead_letters.topic_bytes
            group.dead_size = <int32_t>len(dead_letters.topic_bytes)
            group.watch = dead_letters.tails.watch(dead_letters.topic)
        self.groups[name.encode()] = group

    def register_source(self, QueueTail queue not None):
        """Serve messages that come from a queue."""
        self.sources[b"%b\1%d" % (queue.topic_bytes, queue.queue_id)] = queue

    def unregister_group(self, str name not None):
        """Leave the messages of a group to Python until it registers it again."""
        self.groups.pop(name.encode(), None)

    def unregister_all(self):
        """Leave all messages to Python until it registers their groups again."""
        self.groups.clear()
        self.sources.clear()

    def __len__(self):
        """Return the number of queues."""
        return len(self.sources)

    # -- one request

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Stage the message and reply."""
        cdef BackRequest wanted
        if not self.read_header(frame, &wanted):
            return decline(conn, HEADER)
        if self.table.log.must_wait(frame.now_ms):
            return WAITS
        if not self.table.log.is_writable or self.table.log.encoder.has_record_crc:
            return decline(conn, REFUSING)
        wanted.group = self.find_group(&frame.fields[GROUP])
        if wanted.group == NULL:
            return decline(conn, GROUP_UNKNOWN)
        if not self.find_record(&wanted):
            return decline(conn, RECORD)
        if not self.read_properties(&wanted):
            return decline(conn, PROPERTY)
        if self.stage(conn, &wanted) == DECLINED:
            self.table.forget_clock()
            return DECLINED
        self.record_stored(&wanted)
        if not frame.flag & ONEWAY_FLAG:
            put_success(frame, conn, self.version)
        return SERVED

    cdef bint read_header(
        self, const Frame *frame, BackRequest *wanted
    ) noexcept nogil:
        """Read the header; False for unusual values."""
        cdef const Text *texts = frame.fields
        cdef int64_t limit
        if texts[GROUP].data == NULL or texts[GROUP].escaped:
            return False
        if not is_unset(&texts[UNIT_MODE]):
            return False
        wanted.limit = INT64_MAX
        if texts[MAX_RECONSUME_TIMES].data != NULL:
            if not read_integer(
                &texts[MAX_RECONSUME_TIMES], INT32_MIN, INT32_MAX, &limit
            ):
                return False
            if frame.version >= LIMIT_SINCE:
                wanted.limit = limit
        return (
            read_integer(&texts[OFFSET], 0, INT64_MAX, &wanted.offset)
            and read_integer(&texts[LEVEL], INT32_MIN, INT32_MAX, &wanted.level)
        )

    cdef void *find_group(self, const Text *name) noexcept with gil:
        """Return the BackGroup of a name, or NULL."""
        cdef BackGroup group = self.groups.get(
            PyBytes_FromStringAndSize(<const char *>name.data, name.size)
        )
        return NULL if group is None or self.delayed is None else <void *>group

    cdef int64_t readable_end(self) noexcept nogil:
        """Return the end of the log for readers."""
        if self.visible is not None:
            return self.visible.load()
        if self.table.log.file is None:
            return 0
        return self.table.log.file.base_offset + self.table.log.file._write_position

    cdef bint find_record(self, BackRequest *wanted) noexcept nogil:
        """Find a record in memory that an entry of its queue names."""
        cdef int64_t offset = wanted.offset
        cdef int64_t end = self.readable_end()
        cdef int64_t position = 0, size
        cdef void *file = NULL
        if offset < self.reader.ring_floor():
            file = self.reader.file_at(offset)
            if file == NULL:
                return False
            position = offset - (<MappedFile>file).base_offset
            end = min(
                end, (<MappedFile>file).base_offset + (<MappedFile>file)._write_position
            )
        if end - offset < RecordLayout.FIXED_SIZE_V1:
            return False
        if file != NULL and not (<MappedFile>file).has_pages(
            position, min(end - offset, <int64_t>PAGE_SIZE)
        ):
            return False
        wanted.record = self.reader.address_of(offset)
        size = <int32_t>get32(wanted.record + RecordLayout.SIZE_AT)
        if not RecordLayout.FIXED_SIZE_V1 <= size <= end - offset:
            return False
        if file != NULL:
            if size > PAGE_SIZE and not (<MappedFile>file).has_pages(position, size):
                return False
            if (<MappedFile>file).check_blocks(
                position, size, PAGES_UNKNOWN
            ) != BLOCKS_RIGHT:
                return False
        return (
            split_record(wanted.record, size, False, &wanted.parts) == OK
            and wanted.parts.size == size
            and wanted.parts.physical_offset == offset
            and wanted.parts.body_size <= self.table.max_body_size
            and self.has_entry(wanted)
        )

    cdef bint has_entry(self, const BackRequest *wanted) noexcept with gil:
        """True if the record's queue has its entry; False also if Python has to search
        it.
        """
        cdef const RecordParts *parts = &wanted.parts
        cdef uint8_t key[KEY_LIMIT]
        cdef uint8_t *key_end
        cdef const uint8_t *entry
        cdef QueueTail queue
        if parts.topic_size + DIGITS_LIMIT + 1 > KEY_LIMIT or parts.queue_id < 0:
            return False
        key_end = put_text(
            key, <const char *>wanted.record + parts.topic_at, parts.topic_size
        )
        key_end = put_integer(put_literal(key_end, b"\1"), parts.queue_id)
        queue = self.sources.get(
            PyBytes_FromStringAndSize(<const char *>key, key_end - key)
        )
        if (
            queue is None
            or queue.is_deleted
            or wanted.offset < queue.tails.log_start
            or not queue.low_offset <= parts.queue_offset < queue.next_offset
        ):
            return False
        entry = queue.entry_at(parts.queue_offset)
        if entry != NULL:
            return (
                <int64_t>get64(entry + QueueEntryLayout.ENTRY_OFFSET_AT)
                == wanted.offset
                and <int32_t>get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
                == parts.size
            )
        try:
            found = (<object>queue).entry_at(parts.queue_offset)
        except Exception:
            return False        # Python repeats the read, and answers the error
        return found[0] == wanted.offset and found[1] == parts.size

    cdef bint read_properties(self, BackRequest *wanted) noexcept nogil:
        """Find the own properties; False: Python serves the message.

        Python encodes all properties again, so each must be complete and unique.
        """
        cdef const RecordParts *parts = &wanted.parts
        cdef const uint8_t *text = wanted.record + parts.properties_at
        cdef const uint8_t *end = text + parts.properties_size
        cdef const uint8_t *stop
        cdef const uint8_t *middle
        cdef Name names[PAIR_LIMIT]
        cdef int32_t own, count = 0
        if not is_utf8(text, parts.properties_size):
            return False
        wanted.found = 0
        wanted.values[RETRY_TOPIC].data = wanted.record + parts.topic_at
        wanted.values[RETRY_TOPIC].size = parts.topic_size
        while text < end:
            stop = find_byte(text, end, 2)
            middle = find_byte(text, stop, 1)
            if (
                stop == end or middle == text or middle + 1 >= stop
                or count == PAIR_LIMIT
            ):
                return False
            names[count].data, names[count].size = text, middle - text
            if contains_name(names, count, &names[count]):
                return False
            own = _own_of(&names[count])
            if own < OWN_COUNT:
                wanted.found |= 1 << own
                if own == RETRY_TOPIC:
                    wanted.values[RETRY_TOPIC].data = middle + 1
                    wanted.values[RETRY_TOPIC].size = stop - middle - 1
            elif contains_name(self.names, self.name_count, &names[count]):
                return False
            count += 1
            text = stop + 1
        return True

    # -- the new record

    cdef Verdict stage(self, Conn *conn, BackRequest *wanted) noexcept nogil:
        """Stage the record of the next attempt, or the dead letter."""
        cdef const RecordParts *parts = &wanted.parts
        cdef RecordFields *fields = &wanted.fields
        cdef uint8_t *end
        cdef int64_t size, properties_size = (
            parts.properties_size + parts.topic_size + OWN_SIZE
            + (<BackGroup>wanted.group).retry_size
        )
        if (
            parts.sys_flag & ~<int32_t>PLAIN_FLAGS
            or parts.store_host_size != self.table.host_size
        ):
            return decline(conn, RECORD)
        if not self.find_place(wanted):
            return decline(conn, PLACE)
        self.fill_fields(wanted)
        size = encoded_size(
            fields.topic_size, fields.body_size, 0,
            fields.born_host_size + fields.store_host_size,
        )
        if (
            properties_size > RecordLayout.PROPERTIES_LIMIT
            or not self.table.has_room_for(wanted.queue, size + properties_size)
        ):
            return decline(conn, ROOM)
        if not wanted.is_dead:
            self.choose_retry_queue(wanted)
        fields.properties = self.table.staged_end() + size
        end = _put_properties(<uint8_t *>fields.properties, wanted)
        fields.properties_size = <int32_t>(end - fields.properties)
        self.table.stage_record(
            fields, wanted.queue,
            wanted.place.tags_code if wanted.place.has_tags_code else tags_code_of(
                fields.properties, fields.properties_size
            ),
        )
        if wanted.is_dead:
            wake_waiters((<BackGroup>wanted.group).watch.waiters)
            if (
                (<BackGroup>wanted.group).watch.count
                or (<QueueTail>wanted.queue).is_watched
            ):
                self.is_urgent = True
            return SERVED
        if wanted.place.is_soon:
            self.is_urgent = True
        self.delayed.record_staged(&wanted.place, NULL)
        return SERVED

    cdef bint find_place(self, BackRequest *wanted) noexcept nogil:
        """Find the queue of the delay level, or the queue of dead letters."""
        cdef Name *level = &wanted.values[DELAY]
        cdef int64_t number = wanted.level
        cdef int64_t limit = wanted.limit
        wanted.attempts = <int32_t>get32(wanted.record + wanted.parts.body_at - 16)
        if limit == INT64_MAX:
            limit = (<BackGroup>wanted.group).limit
        wanted.is_dead = wanted.attempts >= limit or number < 0
        if wanted.attempts < 0 or wanted.attempts == INT32_MAX:
            return False
        wanted.values[WAIT].data, wanted.values[WAIT].size = b"false", 5
        wanted.values[REAL_TOPIC].data = wanted.values[REAL_QUEUE_ID].data = NULL
        level.data = wanted.level_text
        if wanted.is_dead:
            return self.find_dead_letters(wanted)
        if number == 0:
            number = FIRST_LEVEL + wanted.attempts
        level.size = put_integer(wanted.level_text, number) - wanted.level_text
        if self.table.store_ms == 0:
            self.table.read_clock()
        if self.delayed.find_place(
            level, level, self.table.store_ms, &wanted.place
        ) != DIVERTED:
            return False
        wanted.queue = wanted.place.queue
        wanted.fields.topic = self.delayed.topic
        wanted.fields.topic_size = self.delayed.topic_size
        return True

    cdef bint find_dead_letters(self, BackRequest *wanted) noexcept nogil:
        """Find the queue of dead letters; False if Python has to create it."""
        cdef void *group = wanted.group
        if (<BackGroup>group).dead_letters is None:
            return False
        wanted.level_text[0] = 48
        wanted.values[DELAY].size = 1
        wanted.queue = <void *>(<BackGroup>group).dead_letters
        wanted.place.has_tags_code = False
        wanted.fields.topic = (<BackGroup>group).dead
        wanted.fields.topic_size = (<BackGroup>group).dead_size
        return True

    cdef void choose_retry_queue(self, BackRequest *wanted) noexcept nogil:
        """Set the address of the retry."""
        cdef void *group = wanted.group
        cdef int64_t queue_id = 0
        if (<BackGroup>group).queue_count > 1:
            with gil:
                queue_id = self.choose_queue((<BackGroup>group).queue_count)
        wanted.values[REAL_TOPIC].data = (<BackGroup>group).retry
        wanted.values[REAL_TOPIC].size = (<BackGroup>group).retry_size
        wanted.values[REAL_QUEUE_ID].data = wanted.queue_text
        wanted.values[REAL_QUEUE_ID].size = (
            put_integer(wanted.queue_text, queue_id) - wanted.queue_text
        )

    cdef void fill_fields(self, BackRequest *wanted) noexcept nogil:
        """Set the fields of the new record, besides its topic and properties."""
        cdef RecordFields *fields = &wanted.fields
        cdef const RecordParts *parts = &wanted.parts
        cdef const uint8_t *record = wanted.record
        cdef int64_t at = parts.body_at - 16 - parts.store_host_size
        fields.queue_id = (<QueueTail>wanted.queue).queue_id
        fields.body, fields.body_size = record + parts.body_at, parts.body_size
        fields.born_host = record + RecordLayout.BORN_HOST_AT
        fields.born_host_size = parts.born_host_size
        fields.store_host = self.table.host
        fields.store_host_size = self.table.host_size
        fields.flag = get32(record + RecordLayout.FLAG_AT)
        fields.sys_flag = parts.sys_flag
        fields.reconsume_times = <int32_t>wanted.attempts + 1
        fields.born_ms = get64(record + RecordLayout.BORN_MS_AT)
        fields.prepared_offset = 0
        wanted.values[ORIGIN_ID].data = wanted.origin_id
        wanted.values[ORIGIN_ID].size = _put_message_id(
            wanted.origin_id, record + at, parts.store_host_size,
            record + RecordLayout.PHYSICAL_OFFSET_AT,
        ) - wanted.origin_id

    # -- the end of a poll

    cdef void record_stored(self, const BackRequest *wanted) noexcept with gil:
        """Record the message for the statistics until the poll ends."""
        cdef const Name *topic = &wanted.values[RETRY_TOPIC]
        if not self.stored:
            self.lost_polls = self.table.lost_polls
        self.stored.append((
            (<BackGroup>wanted.group).name, topic.data[:topic.size].decode(),
            wanted.is_dead,
        ))

    cdef bint end_of_poll(self) noexcept nogil:
        """Write the messages of this poll, and report them."""
        cdef bint is_written = self.table.commit()
        self.report_stored(is_written and self.table.lost_polls == self.lost_polls)
        return is_written

    cdef void report_stored(self, bint is_written) noexcept with gil:
        if self.stored:
            stored, self.stored = self.stored, []
            if is_written:
                self.on_stored(stored)


cdef int32_t _own_of(const Name *name) noexcept nogil:
    """Return the number of an own property; OWN_COUNT for other names."""
    cdef const uint8_t *data = name.data
    cdef int64_t size = name.size
    if is_literal(data, size, b"RETRY_TOPIC"):
        return RETRY_TOPIC
    if is_literal(data, size, b"ORIGIN_MESSAGE_ID"):
        return ORIGIN_ID
    if is_literal(data, size, b"WAIT"):
        return WAIT
    if is_literal(data, size, b"DELAY"):
        return DELAY
    if is_literal(data, size, b"REAL_TOPIC"):
        return REAL_TOPIC
    return REAL_QUEUE_ID if is_literal(data, size, b"REAL_QID") else OWN_COUNT


cdef uint8_t *_put_message_id(
    uint8_t *out, const uint8_t *host, int64_t host_size, const uint8_t *offset
) noexcept nogil:
    """Write a message id: host and offset as they are in the record, in hexadecimal."""
    cdef int64_t i
    cdef uint8_t byte
    for i in range(host_size + 8):
        byte = host[i] if i < host_size else offset[i - host_size]
        out[0], out[1] = DIGITS[byte >> 4], DIGITS[byte & 15]
        out += 2
    return out


cdef uint8_t *_put_name(uint8_t *out, int32_t own) noexcept nogil:
    """Write the name of an own property with its separator."""
    if own == RETRY_TOPIC:
        return put_literal(out, b"RETRY_TOPIC\1")
    if own == ORIGIN_ID:
        return put_literal(out, b"ORIGIN_MESSAGE_ID\1")
    if own == WAIT:
        return put_literal(out, b"WAIT\1")
    if own == DELAY:
        return put_literal(out, b"DELAY\1")
    if own == REAL_TOPIC:
        return put_literal(out, b"REAL_TOPIC\1")
    return put_literal(out, b"REAL_QID\1")


cdef uint8_t *_put_properties(
    uint8_t *out, const BackRequest *wanted
) noexcept nogil:
    """Write the properties of the record with the own ones; return their end."""
    cdef const uint8_t *text = wanted.record + wanted.parts.properties_at
    cdef const uint8_t *end = text + wanted.parts.properties_size
    cdef const uint8_t *start = text
    cdef const uint8_t *stop
    cdef const Name *value
    cdef Name name
    cdef int32_t own
    while text < end:
        stop = find_byte(text, end, 2)
        name.data = text
        name.size = find_byte(text, stop, 1) - text
        own = _own_of(&name)
        if WAIT <= own < OWN_COUNT and wanted.values[own].data != NULL:
            value = &wanted.values[own]
            text += name.size + 1
            memcpy(out, start, text - start)
            out = put_text(
                out + (text - start), <const char *>value.data, value.size
            )
            start = stop
        text = stop + 1
    memcpy(out, start, end - start)
    out += end - start
    for own in range(OWN_COUNT):
        value = &wanted.values[own]
        if value.data != NULL and not wanted.found >> own & 1:
            out = put_text(
                _put_name(out, own), <const char *>value.data, value.size
            )
            out = put_literal(out, b"\2")
    return out
