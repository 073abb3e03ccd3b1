"""SendPath: requests 10 and 310 without Python objects, from frame to reply.

It serves what it can prove plain and declines the rest: a topic or queue that the
Python handler has not shown it, anything but whole decimal numbers, bits and properties
with a meaning, a property twice, sizes near a limit, no room in a file.
What it stores and answers is what the Python handler would, byte for byte.
The records of a poll are staged in the SendTable, which writes them at its end; if that
fails no reply leaves.
Belongs to the thread of the reactor.
"""

cimport cython
from libc.stdint cimport INT32_MAX, INT32_MIN, INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcpy

from rmq._fastpath.append cimport RecordFields, encode_record, encoded_size
from rmq._fastpath.header_scan cimport is_plain, unescape
from rmq._fastpath.header_text cimport (
    JSON_TYPE, ONEWAY_FLAG, begin_binary, begin_value, end_frame, end_header, end_json,
    end_value, is_literal, is_unset, put_integer, put_literal, put_text, read_integer,
)
from rmq._fastpath.layout cimport RecordLayout
from rmq._fastpath.native cimport (
    CONTRACT_VERSION, DECLINED, HELD, SERVED, Conn, Frame, NativeHandler, Text, Verdict,
    decline,
)
from rmq._fastpath.send_table cimport (
    PENDING_LIMIT, Pending, Properties, SendTable, SendTopic,
)
from rmq._fastpath.tail cimport QueueTail

cdef const char *DIGITS = "0123456789ABCDEF"

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

cdef enum Reason:
    HEADER = 0
    BODY = 1
    TOPIC_UNKNOWN = 2
    PROPERTY = 3
    ROOM = 4
    REFUSING = 5

REASONS = ("header", "body size", "topic", "properties", "room", "store refuses")
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

    def __init__(self, SendTable table not None, *, bint has_short_names):
        names = SHORT_NAMES if has_short_names else LONG_NAMES
        NativeHandler.__init__(
            self, names, tuple([names[i] for i in VARYING]), CONTRACT_VERSION, REASONS
        )
        self.table = table

    cdef bint read_numbers(
        self, const Frame *frame, RecordFields *fields
    ) noexcept nogil:
        """Read every number that the header must have, and refuse what is unusual."""
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
        if value & ~<int64_t>PLAIN_FLAGS:
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
        if not is_unset(&texts[UNIT_MODE]) or not is_unset(&texts[BATCH]):
            return False
        return texts[MAX_RECONSUME_TIMES].data == NULL or read_integer(
            &texts[MAX_RECONSUME_TIMES], INT32_MIN, INT32_MAX, &value
        )

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Store one message and answer."""
        cdef Sending message
        if not self.check(frame, conn, &message):
            return DECLINED
        if not self.stage(frame, conn, &message):
            return DECLINED
        return self.reply(frame, conn, &message)

    cdef Verdict check(
        self, const Frame *frame, Conn *conn, Sending *message
    ) noexcept nogil:
        """Decline what is not provably plain; find its queue."""
        cdef RecordFields *fields = &message.fields
        cdef const Text *name = &frame.fields[TOPIC]
        cdef const Text *text = &frame.fields[PROPERTIES]
        cdef void *topic
        if frame.body_size == 0 or frame.body_size > self.table.max_body_size:
            return decline(conn, BODY)
        if not self.table.log.is_writable or self.table.pending_count == PENDING_LIMIT:
            return decline(conn, REFUSING)
        message.properties_size = text.size if text.data != NULL else 0
        if (
            message.properties_size + self.table.extra_size
            > RecordLayout.PROPERTIES_LIMIT
        ):
            return decline(conn, HEADER)
        if name.data == NULL or name.escaped or not self.read_numbers(frame, fields):
            return decline(conn, HEADER)
        topic = self.table.find_topic(name.data, name.size)
        if topic == NULL or fields.queue_id >= (<SendTopic>topic).queue_count:
            return decline(conn, TOPIC_UNKNOWN)
        message.queue = (<SendTopic>topic).tails[fields.queue_id]
        message.topic_flags = (<SendTopic>topic).flags
        if message.queue == NULL:
            return decline(conn, TOPIC_UNKNOWN)
        if not (<QueueTail>message.queue).has_room_to_spare():
            return decline(conn, ROOM)
        return SERVED

    cdef Verdict stage(
        self, const Frame *frame, Conn *conn, Sending *message
    ) noexcept nogil:
        """Write the record into the staging buffer; declined, it left no trace there.

        The properties go to their place, the last of the record, before the rest: what
        is added to them decides how large it becomes.
        """
        cdef RecordFields *fields = &message.fields
        cdef Properties properties
        cdef uint8_t *staged
        cdef int64_t size_without, size
        fields.topic = frame.fields[TOPIC].data
        fields.topic_size = frame.fields[TOPIC].size
        fields.body = frame.body
        fields.body_size = <int32_t>frame.body_size
        fields.born_host = conn.peer
        fields.born_host_size = conn.peer_size
        fields.store_host = self.table.host
        fields.store_host_size = self.table.host_size
        size_without = encoded_size(
            fields.topic_size, fields.body_size, 0,
            fields.born_host_size + fields.store_host_size,
        )
        size = size_without + message.properties_size + self.table.extra_size
        if not self.table.log.has_room(size) or not self.table.log.encoder.grow(size):
            return decline(conn, ROOM)
        staged = self.table.log.encoder.staging + self.table.log.encoder.staged_size
        fields.properties = staged + size_without
        fields.properties_size = 0
        if message.properties_size:
            fields.properties_size = unescape(
                <uint8_t *>fields.properties, &frame.fields[PROPERTIES]
            )
        if not self.table.read_properties(
            fields.properties, fields.properties_size, &properties
        ) or not is_plain(properties.unique_key, properties.unique_key_size):
            return decline(conn, PROPERTY)
        if self.table.store_ms == 0:
            self.table.read_clock()
        if not self.table.end_properties(fields, &properties):
            return decline(conn, PROPERTY)
        fields.physical_offset = self.table.log.next_offset()
        fields.queue_offset = (<QueueTail>message.queue).stage()
        fields.sys_flag |= message.topic_flags
        fields.reconsume_times = 0
        fields.store_ms = self.table.store_ms
        fields.prepared_offset = 0
        encode_record(staged, fields)
        message.end_offset = (
            fields.physical_offset + size_without + fields.properties_size
        )
        message.unique_key = properties.unique_key
        message.unique_key_size = properties.unique_key_size
        message.waits = properties.waits
        self.commit(message, properties.tags_code)
        return SERVED

    cdef void commit(self, Sending *message, int64_t tags_code) noexcept nogil:
        """Have the end of the poll write what was staged."""
        cdef Pending *pending = &self.table.pending[self.table.pending_count]
        pending.queue = message.queue
        pending.offset = message.fields.physical_offset
        pending.size = <int32_t>(message.end_offset - message.fields.physical_offset)
        pending.tags_code = tags_code
        self.table.pending_count += 1
        self.table.log.encoder.staged_size += pending.size
        self.table.log.last_store_ms = message.fields.store_ms
        if (<QueueTail>message.queue).is_watched:
            self.is_urgent = True

    cdef Verdict reply(
        self, const Frame *frame, Conn *conn, const Sending *message
    ) noexcept nogil:
        """Answer now, or once the record is durable."""
        if frame.flag & ONEWAY_FLAG:
            return SERVED
        if self.table.waits_for_disk and message.waits:
            conn.watermark = message.end_offset
            conn.held.end = self.put_reply(conn.held.end, frame, message)
            return HELD
        conn.ready.end = self.put_reply(conn.ready.end, frame, message)
        return SERVED

    cdef bint end_of_poll(self) noexcept nogil:
        """Write the messages of this poll."""
        return self.table.commit()

    cdef uint8_t *put_reply(
        self, uint8_t *out, const Frame *frame, const Sending *message
    ) noexcept nogil:
        """Write the answer in the form of its request; the end of it."""
        cdef uint8_t *end
        if frame.serialize_type == JSON_TYPE:
            end = self.put_json(out + 8, frame, message)
        else:
            end = self.put_binary(out + 8, frame, message)
        end_header(out, end, frame.serialize_type)
        return end_frame(out, end)

    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const Sending *message
    ) noexcept nogil:
        out = put_literal(out, b'{"code":0,"extFields":{"msgId":"')
        out = self.put_message_id(out, message.fields.physical_offset)
        out = put_literal(out, b'","queueId":"')
        out = put_integer(out, message.fields.queue_id)
        out = put_literal(out, b'","queueOffset":"')
        out = put_integer(out, message.fields.queue_offset)
        out = put_literal(out, b'","transactionId":"')
        out = put_text(
            out, <const char *>message.unique_key, message.unique_key_size
        )
        out = put_literal(out, b'"')
        out = put_text(out, self.table.facts.json_text, self.table.facts.json_size)
        out = put_literal(out, b"}")
        return end_json(out, frame, b"", self.table.version)

    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const Sending *message
    ) noexcept nogil:
        cdef uint8_t *fields = begin_binary(out, frame, 0, b"", self.table.version)
        cdef uint8_t *start
        cdef uint8_t *end
        start = begin_value(fields, b"msgId")
        end = end_value(
            start, self.put_message_id(start, message.fields.physical_offset)
        )
        start = begin_value(end, b"queueId")
        end = end_value(start, put_integer(start, message.fields.queue_id))
        start = begin_value(end, b"queueOffset")
        end = end_value(start, put_integer(start, message.fields.queue_offset))
        start = begin_value(end, b"transactionId")
        end = put_text(
            start, <const char *>message.unique_key, message.unique_key_size
        )
        end = end_value(start, end)
        end = put_text(end, self.table.facts.binary_text, self.table.facts.binary_size)
        end_value(fields, end)
        return end

    cdef uint8_t *put_message_id(self, uint8_t *out, int64_t offset) noexcept nogil:
        cdef int i
        memcpy(out, self.table.id_text, 2 * self.table.host_size)
        out += 2 * self.table.host_size
        for i in range(16):
            out[i] = DIGITS[offset >> (60 - 4 * i) & 15]
        return out + 16
