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
from libc.stdint cimport (
    INT32_MAX,
    INT32_MIN,
    INT64_MAX,
    int32_t,
    int64_t,
    uint8_t,
    uint32_t,
)
from libc.string cimport memcpy

from rmq._fastpath.append cimport RecordFields, encode_record, encoded_size
from rmq._fastpath.endian cimport put16, put32
from rmq._fastpath.frames cimport is_plain, unescape
from rmq._fastpath.header_text cimport (
    end_value,
    is_text,
    is_unset,
    put_integer,
    put_name,
    put_signed,
    put_text,
    read_integer,
)
from rmq._fastpath.layout cimport RecordLayout
from rmq._fastpath.native cimport (
    CONTRACT_VERSION,
    DECLINED,
    HELD,
    SERVED,
    Conn,
    Frame,
    NativeHandler,
    Text,
    Verdict,
)
from rmq._fastpath.send_table cimport (
    PENDING_LIMIT,
    Pending,
    Properties,
    SendTable,
    SendTopic,
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
    ONEWAY_FLAG = 2
    PLAIN_FLAGS = 0x701         # compressed, and by what; other bits have a meaning
    JSON_TYPE = 0
    LANGUAGE_PYTHON = 3

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
        self, const Frame *frame, int32_t *queue_id, RecordFields *fields
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
        queue_id[0] = <int32_t>value
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
        if texts[RECONSUME_TIMES].data != NULL and not is_text(
            &texts[RECONSUME_TIMES], "0", 1
        ):
            return False
        if not is_unset(&texts[UNIT_MODE]) or not is_unset(&texts[BATCH]):
            return False
        return texts[MAX_RECONSUME_TIMES].data == NULL or read_integer(
            &texts[MAX_RECONSUME_TIMES], INT32_MIN, INT32_MAX, &value
        )

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Stage one message and write its reply."""
        cdef RecordFields fields
        cdef Properties properties
        cdef Sent sent
        cdef Pending *message
        cdef const Text *text = &frame.fields[PROPERTIES]
        cdef int64_t text_size = text.size if text.data != NULL else 0
        cdef uint8_t *staged
        cdef void *topic
        cdef void *queue
        cdef int64_t size, hosts_size
        cdef int64_t extra_size = self.table.extra_size
        conn.reason = BODY
        if frame.body_size == 0 or frame.body_size > self.table.max_body_size:
            return DECLINED
        conn.reason = REFUSING
        if not self.table.log.is_writable or self.table.pending_count == PENDING_LIMIT:
            return DECLINED
        conn.reason = HEADER
        if frame.fields[TOPIC].data == NULL or frame.fields[TOPIC].escaped:
            return DECLINED
        if text_size + extra_size > RecordLayout.PROPERTIES_LIMIT:
            return DECLINED
        if not self.read_numbers(frame, &sent.queue_id, &fields):
            return DECLINED
        conn.reason = TOPIC_UNKNOWN
        topic = self.table.find_topic(
            frame.fields[TOPIC].data, frame.fields[TOPIC].size
        )
        if topic == NULL or sent.queue_id >= (<SendTopic>topic).queue_count:
            return DECLINED
        queue = (<SendTopic>topic).tails[sent.queue_id]
        if queue == NULL:
            return DECLINED
        conn.reason = ROOM
        if not (<QueueTail>queue).has_room_to_spare():
            return DECLINED

        fields.topic = frame.fields[TOPIC].data
        fields.topic_size = frame.fields[TOPIC].size
        fields.body = frame.body
        fields.body_size = <int32_t>frame.body_size
        fields.born_host = conn.peer
        fields.born_host_size = conn.peer_size
        fields.store_host = self.table.host
        fields.store_host_size = self.table.host_size
        hosts_size = fields.born_host_size + fields.store_host_size
        size = encoded_size(
            fields.topic_size, fields.body_size, text_size + extra_size, hosts_size
        )
        if not self.table.log.has_room(size) or not self.table.log.encoder.grow(size):
            return DECLINED
        # the properties go to their place, the last of the record, before the rest
        staged = self.table.log.encoder.staging + self.table.log.encoder.staged_size
        fields.properties = staged + encoded_size(
            fields.topic_size, fields.body_size, 0, hosts_size
        )
        fields.properties_size = 0
        if text_size:
            fields.properties_size = unescape(<uint8_t *>fields.properties, text)
        conn.reason = PROPERTY
        if not self.table.read_properties(
            fields.properties, fields.properties_size, &properties
        ) or not is_plain(properties.unique_key, properties.unique_key_size):
            return DECLINED
        if self.table.store_ms == 0:
            self.table.read_clock()
        if not self.table.end_properties(&fields, &properties):
            return DECLINED
        sent.offset = self.table.log.next_offset()
        sent.queue_offset = (<QueueTail>queue).stage()
        sent.unique_key = properties.unique_key
        sent.unique_key_size = properties.unique_key_size
        fields.sys_flag |= (<SendTopic>topic).flags
        fields.queue_id = sent.queue_id
        fields.reconsume_times = 0
        fields.queue_offset = sent.queue_offset
        fields.physical_offset = sent.offset
        fields.store_ms = self.table.store_ms
        fields.prepared_offset = 0
        encode_record(staged, &fields)
        size = encoded_size(
            fields.topic_size, fields.body_size, fields.properties_size, hosts_size
        )
        self.table.log.encoder.staged_size += size
        self.table.log.last_store_ms = fields.store_ms
        message = &self.table.pending[self.table.pending_count]
        message.queue = queue
        message.offset = sent.offset
        message.size = <int32_t>size
        message.tags_code = properties.tags_code
        self.table.pending_count += 1
        if (<QueueTail>queue).is_watched:
            self.is_urgent = True
        if frame.flag & ONEWAY_FLAG:
            return SERVED
        if self.table.waits_for_disk and properties.waits:
            conn.watermark = sent.offset + size
            conn.held.end = self.put_reply(conn.held.end, frame, &sent)
            return HELD
        conn.ready.end = self.put_reply(conn.ready.end, frame, &sent)
        return SERVED

    cdef bint end_of_drain(self) noexcept nogil:
        """Write the messages of this poll."""
        return self.table.commit()

    cdef uint8_t *put_reply(
        self, uint8_t *out, const Frame *frame, const Sent *sent
    ) noexcept nogil:
        """Write the answer in the form of its request; the end of it."""
        cdef uint8_t *end
        if frame.serialize_type == JSON_TYPE:
            end = self.put_json(out + 8, frame, sent)
            put32(out + 4, <uint32_t>(end - out - 8))
        else:
            end = self.put_binary(out + 8, frame, sent)
            put32(out + 4, <uint32_t>(end - out - 8) | 1 << 24)
        put32(out, <uint32_t>(end - out - 4))
        return end

    cdef uint8_t *put_json(
        self, uint8_t *out, const Frame *frame, const Sent *sent
    ) noexcept nogil:
        out = put_text(out, b'{"code":0,"extFields":{"msgId":"', 32)
        out = self.put_message_id(out, sent.offset)
        out = put_text(out, b'","queueId":"', 13)
        out = put_integer(out, sent.queue_id)
        out = put_text(out, b'","queueOffset":"', 17)
        out = put_integer(out, sent.queue_offset)
        out = put_text(out, b'","transactionId":"', 19)
        out = put_text(out, <const char *>sent.unique_key, sent.unique_key_size)
        out = put_text(out, b'"', 1)
        out = put_text(out, self.table.facts_text, self.table.facts_size)
        out = put_text(out, b'},"flag":1,"language":"PYTHON","opaque":', 40)
        out = put_signed(out, frame.opaque)
        out = put_text(out, b',"serializeTypeCurrentRPC":"JSON","version":', 44)
        out = put_integer(out, self.table.version)
        return put_text(out, b"}", 1)

    cdef uint8_t *put_binary(
        self, uint8_t *out, const Frame *frame, const Sent *sent
    ) noexcept nogil:
        cdef uint8_t *fields = out + 21
        cdef uint8_t *end = fields
        cdef uint8_t *start
        put16(out, 0)
        out[2] = LANGUAGE_PYTHON
        put16(out + 3, self.table.version)
        put32(out + 5, <uint32_t>frame.opaque)
        put32(out + 9, 1)
        put32(out + 13, 0)
        start = put_name(end, b"msgId", 5)
        end = end_value(start, self.put_message_id(start, sent.offset))
        start = put_name(end, b"queueId", 7)
        end = end_value(start, put_integer(start, sent.queue_id))
        start = put_name(end, b"queueOffset", 11)
        end = end_value(start, put_integer(start, sent.queue_offset))
        start = put_name(end, b"transactionId", 13)
        end = end_value(
            start, put_text(start, <const char *>sent.unique_key, sent.unique_key_size)
        )
        end = put_text(end, self.table.binary_facts_text, self.table.binary_facts_size)
        put32(out + 17, <uint32_t>(end - fields))
        return end

    cdef uint8_t *put_message_id(self, uint8_t *out, int64_t offset) noexcept nogil:
        cdef int i
        memcpy(out, self.table.id_text, 2 * self.table.host_size)
        out += 2 * self.table.host_size
        for i in range(16):
            out[i] = DIGITS[offset >> (60 - 4 * i) & 15]
        return out + 16
