"""SendPath: requests 10, 310 and 320 without Python objects, from frame to reply.

A request has one message or is a batch: 320 always, the others if their header has the
batch flag.

It serves plain requests and declines others. It declines a topic or queue that Python
has not registered, numbers that are not whole decimals, and bits and properties with a
meaning. It also declines a duplicate property, sizes near a limit, and a record without
room in its file. It stores and replies the same bytes as the Python handler. It
declines a message whose key its topic has stored (`once_table.pyx`). A message with a
time or a delay level, and a half message, goes into another queue (`diversion.pyx`).
The records of a poll
are staged in the SendTable, which writes them at its end. If that fails, no reply is
sent. Belongs to the thread of the reactor.
"""

# tidy: long — one request from its frame to its answer, also with a time, also a batch
cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy, memmove

from rmq._fastpath.bytes.ascii cimport is_literal, put_integer, put_literal, put_text
from rmq._fastpath.bytes.utf8 cimport is_utf8
from rmq._fastpath.handlers.diversion cimport (
    HANDLE_ROOM, PLAIN, REFUSED, Decision, Diversion,
)
from rmq._fastpath.handlers.send_table cimport Properties, SendTable, SendTopic
from rmq._fastpath.log.batch_items cimport ITEM_LIMIT, BatchItem, read_item
from rmq._fastpath.log.encode cimport (
    RecordFields, encoded_size, tags_code_of,
)
from rmq._fastpath.log.layout cimport RecordLayout
from rmq._fastpath.log.queue_tail cimport QueueTail, TopicWatch
from rmq._fastpath.log.record_keys cimport RecordKeys, find_keys
from rmq._fastpath.log.waiters cimport wake_waiters
from rmq._fastpath.reactor.connections cimport Connections, Slot
from rmq._fastpath.reactor.header_scan cimport is_plain, unescape
from rmq._fastpath.reactor.header_text cimport (
    JSON_TYPE, ONEWAY_FLAG, begin_binary, begin_value, end_frame, end_header, end_json,
    end_value, is_unset, read_integer,
)
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, DECLINED, HELD, REPLY_ROOM, SERVED, WAITS, Conn, Frame,
    NativeHandler, Text, Verdict, decline,
)

cdef const char *DIGITS = "0123456789ABCDEF"

cdef extern from "string.h":
    const void *memmem(
        const void *text, size_t size, const void *part, size_t part_size
    ) noexcept nogil

cdef enum:
    GROUP = 0
    TOPIC = 1
    DEFAULT_TOPIC = 2
    DEFAULT_QUEUES = 3
    QUEUE_ID = 4
    SYS_FLAG = 5
    BORN_MS = 6
    FLAG = 7
    PROPERTIES = 8
    RECONSUME_TIMES = 9
    UNIT_MODE = 10
    MAX_RECONSUME_TIMES = 11
    BATCH = 12

cdef enum:
    PLAIN_FLAGS = 0x701         # compressed, and by what; other bits have a meaning
    MOST_FLAGS = 0x705          # and half, which a diversion has to accept
    ID_OFFSET_DIGITS = 16       # digits of the offset at the end of a message id
    KEY_NAME_END = 8            # bytes before a key: the end of its name

cdef enum Reason:
    HEADER = 0
    BODY = 1
    TOPIC_UNKNOWN = 2
    PROPERTY = 3
    ROOM = 4
    REFUSING = 5
    KNOWN_KEY = 6

REASONS = (
    "header", "body size", "topic", "properties", "room", "store refuses",
    "stored before",
)
LONG_NAMES = (
    "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId",
    "sysFlag", "bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode",
    "maxReconsumeTimes", "batch",
)
SHORT_NAMES = tuple("abcdefghijklm")
VARYING = (TOPIC, QUEUE_ID, BORN_MS, PROPERTIES)


@cython.final
cdef class SendPath(NativeHandler):
    """Serves one of the send codes."""

    def __init__(
        self,
        SendTable table not None,
        *,
        bint has_short_names,
        bint takes_batches=False,
    ):
        """`takes_batches` if every body is a batch, without the batch flag."""
        names = SHORT_NAMES if has_short_names else LONG_NAMES
        NativeHandler.__init__(
            self, names, tuple([names[i] for i in VARYING]), CONTRACT_VERSION, REASONS
        )
        self.table = table
        self.takes_batches = takes_batches

    cdef bint read_numbers(
        self, const Frame *frame, RecordFields *fields
    ) noexcept nogil:
        """Read all numbers of the header; False for unusual values."""
        cdef const Text *texts = frame.fields
        cdef int64_t value
        if texts[GROUP].data == NULL or texts[DEFAULT_TOPIC].data == NULL:
            return False
        if not read_integer(&texts[DEFAULT_QUEUES], INT32_MIN, INT32_MAX, &value):
            return False
        if not read_integer(&texts[QUEUE_ID], 0, INT32_MAX, &value):
            return False
        fields.queue_id = <int32_t>value
        if not read_integer(&texts[SYS_FLAG], 0, INT32_MAX, &value):
            return False
        if value & ~<int64_t>MOST_FLAGS:
            return False
        fields.sys_flag = <int32_t>value
        if not read_integer(&texts[BORN_MS], 0, INT64_MAX, &fields.born_ms):
            return False
        if not read_integer(&texts[FLAG], INT32_MIN, INT32_MAX, &value):
            return False
        fields.flag = <int32_t>value
        if texts[RECONSUME_TIMES].data != NULL and not is_literal(
            texts[RECONSUME_TIMES].data, texts[RECONSUME_TIMES].size, b"0"
        ):
            return False
        if not is_unset(&texts[UNIT_MODE]):
            return False
        return texts[MAX_RECONSUME_TIMES].data == NULL or read_integer(
            &texts[MAX_RECONSUME_TIMES], INT32_MIN, INT32_MAX, &value
        )

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Stage one message, or the messages of a batch, and reply."""
        cdef SendRequest message
        cdef bint is_staged
        if self.table.log.must_wait(frame.now_ms):
            return WAITS
        if not self.check_request(frame, conn, &message):
            return DECLINED
        if message.is_batch:
            is_staged = self.stage_batch(frame, conn, &message)
        else:
            is_staged = self.stage(frame, conn, &message)
        if not is_staged:
            self.table.forget_clock()
            return DECLINED
        return self.reply(frame, conn, &message)

    cdef Verdict check_request(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil:
        """Check the request and find its queue."""
        cdef RecordFields *fields = &message.fields
        cdef const Text *name = &frame.fields[TOPIC]
        cdef const Text *text = &frame.fields[PROPERTIES]
        cdef const Text *batch = &frame.fields[BATCH]
        cdef void *topic
        if frame.body_size == 0 or frame.body_size > self.table.max_body_size:
            return decline(conn, BODY)
        if not self.table.log.is_writable:
            return decline(conn, REFUSING)
        message.properties_size = text.size if text.data != NULL else 0
        if (
            message.properties_size + self.table.extra_size
            > RecordLayout.PROPERTIES_LIMIT
        ):
            return decline(conn, HEADER)
        if name.data == NULL or name.escaped or not self.read_numbers(frame, fields):
            return decline(conn, HEADER)
        message.is_batch = self.takes_batches
        if not is_unset(batch):
            if not is_literal(batch.data, batch.size, b"true"):
                return decline(conn, HEADER)
            message.is_batch = True
        if message.is_batch and fields.sys_flag & ~<int32_t>PLAIN_FLAGS:
            return decline(conn, HEADER)
        topic = self.table.find_topic(name.data, name.size)
        if topic == NULL or fields.queue_id >= (<SendTopic>topic).queue_count:
            return decline(conn, TOPIC_UNKNOWN)
        message.queue_id = fields.queue_id
        message.topic_flags = (<SendTopic>topic).flags
        message.watch = <void *>(<SendTopic>topic).watch
        message.once_window_ms = (<SendTopic>topic).once_window_ms
        message.topic_hash = (<SendTopic>topic).once_hash
        message.queue = NULL
        if fields.queue_id < (<SendTopic>topic).tail_count:
            message.queue = (<SendTopic>topic).tails[fields.queue_id]
        if message.queue != NULL:
            (<QueueTail>message.queue).prefetch()
        elif message.is_batch:
            return decline(conn, TOPIC_UNKNOWN)
        return SERVED

    cdef Verdict stage(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil:
        """Stage the record of one message; DECLINED leaves no trace.

        The properties come first, to their position at the end of the record: the added
        ones decide its size.
        """
        cdef RecordFields *fields = &message.fields
        cdef Properties properties
        cdef uint8_t *staged
        cdef int64_t size_without, size
        self.fill_common(frame, conn, message)
        fields.body = frame.body
        fields.body_size = <int32_t>frame.body_size
        size_without = self.record_size(fields)
        size = size_without + message.properties_size + self.table.extra_size
        if not self.table.has_room(1, size):
            return decline(conn, ROOM)
        staged = self.table.staged_end()
        fields.properties = staged + size_without
        if message.properties_size:
            fields.properties_size = unescape(
                <uint8_t *>fields.properties, &frame.fields[PROPERTIES]
            )
        if not self.table.read_properties(
            fields.properties, fields.properties_size, &properties
        ) or not is_plain(properties.unique_key, properties.unique_key_size):
            return decline(conn, PROPERTY)
        if message.once_window_ms:
            self.load_key(message, properties.unique_key, properties.unique_key_size)
            self.load_next_key(frame, conn, message, &properties)
        if self.table.store_ms == 0:
            self.table.read_clock()
        if not self.find_place(conn, message, &properties):
            return DECLINED
        if fields.sys_flag & MOST_FLAGS & ~PLAIN_FLAGS:
            return decline(conn, HEADER)
        if message.queue == NULL:
            return decline(conn, TOPIC_UNKNOWN)
        if not (<QueueTail>message.queue).has_room_for(1):
            return decline(conn, ROOM)
        if not self.table.end_properties(fields, &properties):
            return decline(conn, PROPERTY)
        if message.diversion != NULL:
            self.divert_record(frame, message, &properties)
        size = self.table.encode_next(fields, message.queue)
        if message.once_window_ms and not self.add_key(message):
            return decline(conn, KNOWN_KEY)
        if message.diversion != NULL:
            self.end_diversion(frame, message)
        message.unique_key = properties.unique_key
        message.unique_key_size = properties.unique_key_size
        message.waits = properties.waits
        message.first = self.table.pending_count
        message.count = 1
        self.stage_record(message, size, properties.tags_code)
        return SERVED

    cdef void load_key(
        self, SendRequest *message, const uint8_t *key, int64_t size
    ) noexcept nogil:
        """Prepare `message` for `add_key`.

        Meanwhile the key's slots come from memory, while the record is encoded.
        """
        if key == NULL:
            message.once_window_ms = 0
        else:
            message.once_hash = self.table.once.load_key(
                message.topic_hash, key, size
            )

    cdef void load_next_key(
        self, const Frame *frame, Conn *conn, const SendRequest *message,
        const Properties *properties,
    ) noexcept nogil:
        """Load the slots of the next frame's key, if it is where this frame has its.

        Memory needs longer than the rest of one frame. A wrong guess does no harm.
        """
        cdef const Slot *slot = (<Connections>conn.owner).slots[conn.slot]
        cdef const Text *text = &frame.fields[PROPERTIES]
        cdef const uint8_t *key
        cdef const uint8_t *next_key
        cdef int64_t size = properties.unique_key_size
        if slot.wire != NULL or not size:
            return
        key = frame.start + self.key_at
        if (
            key < text.data or key + size > text.data + text.size
            or memcmp(key, properties.unique_key, size) != 0
        ):
            key = <const uint8_t *>memmem(
                text.data, text.size, properties.unique_key, size
            )
            if key == NULL:
                return
            self.key_at = key - frame.start
        next_key = key + frame.size
        if next_key + size <= slot.inbox.data + slot.inbox.end and (
            memcmp(next_key - KEY_NAME_END, key - KEY_NAME_END, KEY_NAME_END) == 0
        ):
            self.table.once.load_key(message.topic_hash, next_key, size)

    cdef bint add_key(self, const SendRequest *message) noexcept nogil:
        """Add the key of the next record; False if the topic's window has it."""
        return self.table.once.add_new(
            message.once_hash, self.table.log.next_record_offset(),
            self.table.store_ms, self.table.store_ms - message.once_window_ms,
        )

    cdef Verdict find_place(
        self, Conn *conn, SendRequest *message, const Properties *properties
    ) noexcept nogil:
        """Find the queue of a message, if it has a property that diverts it."""
        cdef void *diversion = properties.diversion
        cdef Decision decision
        if diversion == NULL:
            return SERVED
        decision = (<Diversion>diversion).find_place(
            &properties.diverting_name, &properties.diverting_value,
            self.table.store_ms, &message.place,
        )
        if decision == REFUSED:
            return decline(conn, PROPERTY)
        if decision == PLAIN:
            return SERVED
        if properties.has_address or (<QueueTail>message.place.queue).is_deleted:
            return decline(conn, PROPERTY)
        if not conn.grow(conn, REPLY_ROOM + HANDLE_ROOM):
            return decline(conn, ROOM)
        message.diversion = diversion
        message.queue = message.place.queue
        message.watch = NULL
        message.fields.sys_flag &= ~(<Diversion>diversion).accepted_flags
        return SERVED

    cdef void divert_record(
        self, const Frame *frame, SendRequest *message, Properties *properties
    ) noexcept nogil:
        """Change topic and queue of a diverted message, and add its own ones.

        Its properties move to their position in a record of that topic.
        """
        cdef RecordFields *fields = &message.fields
        cdef const Text *topic = &frame.fields[TOPIC]
        cdef uint8_t *start = <uint8_t *>fields.properties
        cdef int64_t moved = -self.record_size(fields)
        fields.topic = (<Diversion>message.diversion).topic
        fields.topic_size = (<Diversion>message.diversion).topic_size
        fields.queue_id = (<QueueTail>message.queue).queue_id
        moved += self.record_size(fields)
        memmove(start + moved, start, fields.properties_size)
        start += moved
        properties.unique_key += moved
        fields.properties = start
        fields.properties_size = <int32_t>(
            (<Diversion>message.diversion).put_address(
                start + fields.properties_size, &message.place, topic,
                message.queue_id, properties.unique_key, properties.unique_key_size,
            ) - start
        )
        if message.place.has_tags_code:
            properties.tags_code = message.place.tags_code

    cdef void end_diversion(
        self, const Frame *frame, const SendRequest *message
    ) noexcept nogil:
        """Notify the task that delivers a diverted message."""
        if message.place.is_soon:
            self.is_urgent = True
        (<Diversion>message.diversion).record_staged(
            &message.place, &frame.fields[TOPIC]
        )

    cdef Verdict stage_batch(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil:
        """Stage the records of a batch; DECLINED leaves no trace."""
        cdef RecordFields *fields = &message.fields
        cdef BatchItem item
        cdef RecordKeys keys
        cdef const uint8_t *p = frame.body
        cdef const uint8_t *end = p + frame.body_size
        cdef int64_t size
        self.fill_common(frame, conn, message)
        size = self.measure_batch(p, end, message)
        if size < 0:
            return decline(conn, BODY)
        size += message.properties_size
        if not (
            self.table.has_room(message.count, size)
            and (<QueueTail>message.queue).has_room_for(message.count)
        ):
            return decline(conn, ROOM)
        if not self.read_batch_properties(frame, message):
            return decline(conn, PROPERTY)
        if not frame.flag & ONEWAY_FLAG and message.count > 1 and not conn.grow(
            conn, self.reply_size(message.count)
        ):
            return decline(conn, ROOM)
        if self.table.store_ms == 0:
            self.table.read_clock()
        if message.once_window_ms:
            read_item(p, end, &item)
            find_keys(item.properties, item.properties_size, &keys)
            self.load_key(
                message, keys.unique if keys.unique_size else NULL, keys.unique_size
            )
            if message.once_window_ms and not self.add_key(message):
                return decline(conn, KNOWN_KEY)
        message.first = self.table.pending_count
        while p < end:
            p = read_item(p, end, &item)
            fields.flag = item.flag
            fields.body = item.body
            fields.body_size = item.body_size
            fields.properties = item.properties
            fields.properties_size = item.properties_size
            size = self.table.encode_next(fields, message.queue)
            self.stage_record(
                message, size,
                tags_code_of(item.properties, item.properties_size),
            )
        return SERVED

    cdef int64_t measure_batch(
        self, const uint8_t *p, const uint8_t *end, SendRequest *message
    ) noexcept nogil:
        """Count the records of a batch; return their total size, -1: Python decides."""
        cdef BatchItem item
        cdef int64_t size = 0
        message.count = 0
        while p < end:
            p = read_item(p, end, &item)
            if p == NULL or not is_utf8(item.properties, item.properties_size):
                return -1
            if (
                item.properties_size + self.table.crc_size
                > RecordLayout.PROPERTIES_LIMIT
            ):
                return -1
            if self.table.text_size and memmem(
                item.properties, item.properties_size,
                self.table.text, self.table.text_size,
            ) != NULL:
                return -1
            message.fields.body_size = item.body_size
            size += self.record_size(&message.fields) + item.properties_size
            size += self.table.crc_size
            message.count += 1
        return size if message.count <= ITEM_LIMIT else -1

    cdef void fill_common(
        self, const Frame *frame, Conn *conn, SendRequest *message
    ) noexcept nogil:
        """Set the fields that all records of the request share."""
        cdef RecordFields *fields = &message.fields
        message.diversion = NULL
        fields.topic = frame.fields[TOPIC].data
        fields.topic_size = frame.fields[TOPIC].size
        fields.properties_size = 0
        fields.born_host = conn.peer
        fields.born_host_size = conn.peer_size
        fields.store_host = self.table.host
        fields.store_host_size = self.table.host_size
        fields.sys_flag |= message.topic_flags
        fields.reconsume_times = 0
        fields.prepared_offset = 0

    cdef int64_t record_size(self, const RecordFields *fields) noexcept nogil:
        """Return the size of a record without its properties."""
        return encoded_size(
            fields.topic_size, fields.body_size, 0,
            fields.born_host_size + fields.store_host_size,
        )

    cdef bint read_batch_properties(
        self, const Frame *frame, SendRequest *message
    ) noexcept nogil:
        """Read the header's properties, which are not stored."""
        cdef Properties properties
        cdef uint8_t *text = self.table.staged_end()
        cdef int64_t size = 0
        if message.properties_size:
            size = unescape(text, &frame.fields[PROPERTIES])
        if not self.table.read_properties(text, size, &properties) or (
            properties.diversion != NULL
        ):
            return False
        if not is_plain(properties.unique_key, properties.unique_key_size):
            return False
        message.waits = properties.waits
        message.unique_key = NULL
        message.unique_key_size = properties.unique_key_size
        if properties.unique_key != NULL:
            memcpy(
                message.batch_key, properties.unique_key, properties.unique_key_size
            )
            message.unique_key = message.batch_key
        return True

    cdef void stage_record(
        self, SendRequest *message, int64_t size, int64_t tags_code
    ) noexcept nogil:
        """Add an encoded record to the others of this poll; its end writes them."""
        self.table.stage_encoded(&message.fields, message.queue, size, tags_code)
        message.end_offset = message.fields.physical_offset + size
        if message.watch != NULL:
            wake_waiters((<TopicWatch>message.watch).waiters)
            if (<TopicWatch>message.watch).count > 0:
                self.is_urgent = True
        if (<QueueTail>message.queue).is_watched:
            self.is_urgent = True

    cdef Verdict reply(
        self, const Frame *frame, Conn *conn, const SendRequest *message
    ) noexcept nogil:
        """Write the reply; it is sent now, or when the records are durable."""
        cdef Verdict verdict = SERVED
        if frame.flag & ONEWAY_FLAG:
            return SERVED
        if self.table.waits_for_disk and message.waits:
            conn.watermark = message.end_offset
            verdict = HELD
        conn.ready.end = self.put_reply(conn.ready.end, frame, message)
        return verdict

    cdef bint end_of_poll(self) noexcept nogil:
        """Write the messages of this poll."""
        return self.table.commit()

    cdef uint8_t *put_reply(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil:
        """Write the reply with the header type of the request; return its end."""
        cdef uint8_t *end
        if frame.serialize_type == JSON_TYPE:
            end = self.put_json(out + 8, frame, message)
        else:
            end = self.put_binary(out + 8, frame, message)
        end_header(out, end, frame.serialize_type)
        return end_frame(out, end)

    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil:
        out = put_literal(out, b'{"code":0,"extFields":{"msgId":"')
        out = self.put_message_ids(out, message)
        out = put_literal(out, b'","queueId":"')
        out = put_integer(out, message.queue_id)
        out = put_literal(out, b'","queueOffset":"')
        out = put_integer(out, self.queue_offset(message))
        if message.unique_key != NULL:
            out = put_literal(out, b'","transactionId":"')
            out = put_text(
                out, <const char *>message.unique_key, message.unique_key_size
            )
        out = put_literal(out, b'"')
        out = put_text(out, self.table.facts.json_text, self.table.facts.json_size)
        if message.diversion != NULL and (<Diversion>message.diversion).has_handle:
            out = put_literal(out, b',"recallHandle":"')
            out = put_literal(self.put_recall_handle(out, frame, message), b'"')
        out = put_literal(out, b"}")
        return end_json(out, frame, b"", self.table.version)

    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil:
        cdef uint8_t *fields = begin_binary(out, frame, 0, b"", self.table.version)
        cdef uint8_t *start
        cdef uint8_t *end
        start = begin_value(fields, b"msgId")
        end = end_value(start, self.put_message_ids(start, message))
        start = begin_value(end, b"queueId")
        end = end_value(start, put_integer(start, message.queue_id))
        start = begin_value(end, b"queueOffset")
        end = end_value(start, put_integer(start, self.queue_offset(message)))
        if message.unique_key != NULL:
            start = begin_value(end, b"transactionId")
            end = put_text(
                start, <const char *>message.unique_key, message.unique_key_size
            )
            end = end_value(start, end)
        end = put_text(end, self.table.facts.binary_text, self.table.facts.binary_size)
        if message.diversion != NULL and (<Diversion>message.diversion).has_handle:
            start = begin_value(end, b"recallHandle")
            end = end_value(start, self.put_recall_handle(start, frame, message))
        end_value(fields, end)
        return end

    cdef uint8_t *put_recall_handle(
        self, uint8_t *out, const Frame *frame, const SendRequest *message
    ) noexcept nogil:
        return (<Diversion>message.diversion).put_handle(
            out, &message.place, &frame.fields[TOPIC], message.unique_key,
            message.unique_key_size,
        )

    cdef int64_t queue_offset(self, const SendRequest *message) noexcept nogil:
        """Return the queue offset of the first message."""
        return message.fields.queue_offset - message.count + 1

    cdef int64_t reply_size(self, int64_t count) noexcept nogil:
        """Return the largest size of a reply."""
        return REPLY_ROOM + count * (2 * self.table.host_size + ID_OFFSET_DIGITS + 1)

    cdef uint8_t *put_message_ids(
        self, uint8_t *out, const SendRequest *message
    ) noexcept nogil:
        """Write the message ids, separated by commas."""
        cdef int64_t i, offset
        cdef int32_t digit
        for i in range(message.first, message.first + message.count):
            if i > message.first:
                out = put_literal(out, b",")
            memcpy(out, self.table.id_text, 2 * self.table.host_size)
            out += 2 * self.table.host_size
            offset = self.table.pending[i].offset
            for digit in range(ID_OFFSET_DIGITS):
                out[digit] = DIGITS[offset >> (60 - 4 * digit) & 15]
            out += ID_OFFSET_DIGITS
        return out
