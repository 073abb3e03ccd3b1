"""EndPath: request 37 that commits a transaction, without Python objects.

It serves commits of half messages that were never checked and whose record and entry
are in memory. Python serves rollbacks, half messages with a property that needs Python,
damaged half messages, and targets that it has not registered. The record of the commit
is the half message without REAL_TOPIC and REAL_QID, with the half's offset.
`on_begin(offset)` returns whether the transaction is open. After the poll's records are
written, `on_end` gets the commits, because a commit that is not written has not ended
its transaction. Belongs to the thread of the reactor.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memcmp, memcpy

from rmq._fastpath.bytes.ascii cimport is_literal, put_literal, put_text
from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.bytes.find_byte cimport find_byte
from rmq._fastpath.bytes.name_table cimport Name, contains_name
from rmq._fastpath.handlers.diversion cimport HalfSends
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.encode cimport encoded_size, tags_code_of
from rmq._fastpath.log.layout cimport QueueEntryLayout, RecordFlag, RecordLayout
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.mapped_file cimport BLOCKS_RIGHT, PAGES_UNKNOWN, MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.waiters cimport wake_waiters
from rmq._fastpath.log.watermark cimport Watermark
from rmq._fastpath.reactor.header_text cimport ONEWAY_FLAG, put_success, read_integer
from rmq._fastpath.reactor.native cimport (
    CONTRACT_VERSION, HELD, SERVED, WAITS, Conn, Frame, NativeHandler, Text, Verdict,
    decline,
)

cdef enum:
    GROUP = 0
    QUEUE_OFFSET = 1
    PHYSICAL_OFFSET = 2
    END = 3
    FROM_CHECK = 4

cdef enum:
    COMMIT_FLAG = 8             # flag of a record, and value of `commitOrRollback`
    KEY_LIMIT = 512             # maximum bytes of a queue's key

cdef enum Reason:
    HEADER = 0
    HALF = 1
    PROPERTY = 2
    TARGET = 3
    ENDED = 4
    ROOM = 5

NAMES = (
    "producerGroup", "tranStateTableOffset", "commitLogOffset", "commitOrRollback",
    "fromTransactionCheck", "topic", "msgId", "transactionId",
)
VARYING = (
    "tranStateTableOffset", "commitLogOffset", "topic", "msgId", "transactionId",
)
REASONS = (
    "header", "half message", "properties", "topic or queue", "ended or checked",
    "room",
)


cdef class EndTarget:
    """A queue of committed messages."""


@cython.final
cdef class EndPath(NativeHandler):
    """Serves request 37 END_TRANSACTION."""

    def __init__(
        self, LogReader reader not None, Watermark visible, HalfSends halves not None,
        *, declined not None, on_begin not None, on_end not None, int32_t version,
    ):
        """Python serves halves with one of the `declined` properties.

        `on_end(offsets, ages, is_written)` gets the halves' queue offsets, and their
        topics with the seconds since they were born.
        """
        cdef bytes name
        NativeHandler.__init__(self, NAMES, VARYING, CONTRACT_VERSION, REASONS)
        self.reader = reader
        self.visible = visible
        self.halves = halves
        self.on_begin, self.on_end = on_begin, on_end
        self.version = version
        self.targets = {}
        self.offsets, self.ages = [], []
        self.declined = [each.encode() for each in declined]
        if len(self.declined) > NAME_LIMIT:
            raise ValueError(f"more than {NAME_LIMIT} declined properties")
        for name in self.declined:
            self.names[self.name_count].data = name
            self.names[self.name_count].size = len(name)
            self.name_count += 1

    def register(self, QueueTail queue not None):
        """Serve commits to a queue from now on."""
        cdef EndTarget target = EndTarget()
        if len(queue.topic_bytes) > RecordLayout.V1_TOPIC_LIMIT:
            return
        target.queue = queue
        target.watch = queue.tails.watch(queue.topic)
        self.targets[b"%b\1%d" % (queue.topic_bytes, queue.queue_id)] = target

    def unregister_all(self):
        """Leave all commits to Python until it registers their queues again."""
        self.targets.clear()

    def __len__(self):
        return len(self.targets)

    cdef Verdict serve(self, const Frame *frame, Conn *conn) noexcept nogil:
        """Stage the message and reply."""
        cdef EndRequest wanted
        cdef void *target
        cdef void *queue
        if self.table is None or not self.read_header(frame, &wanted):
            return decline(conn, HEADER)
        if self.table.log.must_wait(frame.now_ms):
            return WAITS
        if self.table.log.encoder.has_record_crc:
            return decline(conn, PROPERTY)
        if not self.table.log.is_writable or not self.find_half(&wanted):
            return decline(conn, HALF)
        if not self.read_properties(frame, &wanted):
            return decline(conn, PROPERTY)
        target = self.find_target(&wanted)
        if target == NULL:
            return decline(conn, TARGET)
        queue = <void *>(<EndTarget>target).queue
        if not self.table.has_room_for(queue, wanted.parts.size):
            return decline(conn, ROOM)
        if not self.may_begin(&wanted):
            return decline(conn, ENDED)
        self.stage(&wanted, queue)
        wake_waiters((<EndTarget>target).watch.waiters)
        if (<EndTarget>target).watch.count or (<QueueTail>queue).is_watched:
            self.is_urgent = True
        self.record_end(&wanted, target)
        if frame.flag & ONEWAY_FLAG:
            return SERVED
        put_success(frame, conn, self.version)
        if not self.table.waits_for_disk:
            return SERVED
        conn.watermark = wanted.fields.physical_offset + encoded_size(
            wanted.fields.topic_size, wanted.fields.body_size,
            wanted.fields.properties_size,
            wanted.fields.born_host_size + wanted.fields.store_host_size,
        )
        return HELD

    cdef bint read_header(self, const Frame *frame, EndRequest *wanted) noexcept nogil:
        """Read the header; False for unusual values and for other ends than commits."""
        cdef const Text *texts = frame.fields
        cdef int64_t end
        if texts[GROUP].data == NULL or texts[GROUP].escaped:
            return False
        if texts[FROM_CHECK].data != NULL and not (
            is_literal(texts[FROM_CHECK].data, texts[FROM_CHECK].size, b"false")
            or is_literal(texts[FROM_CHECK].data, texts[FROM_CHECK].size, b"true")
        ):
            return False
        return (
            read_integer(&texts[QUEUE_OFFSET], 0, INT64_MAX, &wanted.queue_offset)
            and read_integer(
                &texts[PHYSICAL_OFFSET], 0, INT64_MAX, &wanted.physical_offset
            )
            and read_integer(&texts[END], COMMIT_FLAG, COMMIT_FLAG, &end)
        )

    cdef bint find_half(self, EndRequest *wanted) noexcept nogil:
        """Find the half message: an entry of its queue must have its offset and size.
        """
        cdef const uint8_t *entry
        cdef void *file
        cdef int64_t offset = wanted.physical_offset, size, position
        if self.halves.queue is None or self.halves.queue.is_deleted:
            return False
        entry = self.halves.queue.entry_at(wanted.queue_offset)
        if entry == NULL or offset != <int64_t>get64(
            entry + QueueEntryLayout.ENTRY_OFFSET_AT
        ):
            return False
        size = get32(entry + QueueEntryLayout.ENTRY_SIZE_AT)
        if self.visible is not None and offset + size > self.visible.load():
            return False
        if offset < self.reader.ring_floor():
            file = self.reader.file_at(offset)
            if file == NULL:
                return False
            position = offset - (<MappedFile>file).base_offset
            if not (<MappedFile>file).has_pages(position, size) or (
                (<MappedFile>file).check_blocks(position, size, PAGES_UNKNOWN)
                != BLOCKS_RIGHT
            ):
                return False
        wanted.half = self.reader.address_of(offset)
        return (
            wanted.half != NULL
            and split_record(wanted.half, size, False, &wanted.parts) == OK
            and wanted.parts.size == size
            and wanted.parts.physical_offset == offset
            and wanted.parts.queue_offset == wanted.queue_offset
            and wanted.parts.topic_size == self.halves.topic_size
            and memcmp(
                wanted.half + wanted.parts.topic_at, self.halves.topic,
                self.halves.topic_size,
            ) == 0
        )

    cdef bint read_properties(
        self, const Frame *frame, EndRequest *wanted
    ) noexcept nogil:
        """Find topic and queue of the message; False: Python serves the commit."""
        cdef const Text *group = &frame.fields[GROUP]
        cdef const uint8_t *text = wanted.half + wanted.parts.properties_at
        cdef const uint8_t *end = text + wanted.parts.properties_size
        cdef const uint8_t *stop
        cdef const uint8_t *middle
        cdef Name name, value
        cdef bint is_of_group = False
        wanted.topic.data = wanted.queue_id.data = NULL
        wanted.kept_size = wanted.parts.properties_size
        while text < end:
            stop = find_byte(text, end, 2)
            middle = find_byte(text, stop, 1)
            if stop == end or middle == text or middle + 1 >= stop:
                return False
            name.data, name.size = text, middle - text
            value.data, value.size = middle + 1, stop - middle - 1
            if is_literal(name.data, name.size, b"REAL_TOPIC"):
                wanted.topic = value
                wanted.kept_size -= stop + 1 - text
            elif is_literal(name.data, name.size, b"REAL_QID"):
                wanted.queue_id = value
                wanted.kept_size -= stop + 1 - text
            elif is_literal(name.data, name.size, b"PGROUP"):
                is_of_group = value.size == group.size and (
                    memcmp(value.data, group.data, value.size) == 0
                )
            elif contains_name(self.names, self.name_count, &name):
                return False
            text = stop + 1
        return is_of_group and wanted.topic.data != NULL and (
            wanted.queue_id.data != NULL
        )

    cdef void *find_target(self, const EndRequest *wanted) noexcept with gil:
        """Return the EndTarget of the message, or NULL."""
        cdef uint8_t key[KEY_LIMIT]
        cdef uint8_t *end
        cdef EndTarget target
        if wanted.topic.size + 1 + wanted.queue_id.size > KEY_LIMIT:
            return NULL
        end = put_text(key, <const char *>wanted.topic.data, wanted.topic.size)
        end = put_text(
            put_literal(end, b"\1"), <const char *>wanted.queue_id.data,
            wanted.queue_id.size,
        )
        target = self.targets.get(
            PyBytes_FromStringAndSize(<const char *>key, end - key)
        )
        return NULL if target is None or target.queue.is_deleted else <void *>target

    cdef bint may_begin(self, const EndRequest *wanted) noexcept with gil:
        return self.on_begin(wanted.queue_offset)

    cdef void stage(self, EndRequest *wanted, void *queue) noexcept nogil:
        """Stage the record of the message; there is room for it."""
        cdef RecordFields *fields = &wanted.fields
        cdef const RecordParts *parts = &wanted.parts
        cdef const uint8_t *half = wanted.half
        cdef int64_t size
        fields.topic = wanted.topic.data
        fields.topic_size = <int32_t>wanted.topic.size
        fields.queue_id = (<QueueTail>queue).queue_id
        fields.body = half + parts.body_at
        fields.body_size = parts.body_size
        fields.born_host = half + RecordLayout.BORN_HOST_AT
        fields.born_host_size = parts.born_host_size
        fields.store_host = self.table.host
        fields.store_host_size = self.table.host_size
        fields.flag = get32(half + RecordLayout.FLAG_AT)
        fields.sys_flag = parts.sys_flag & ~RecordFlag.TRANSACTION_MASK | COMMIT_FLAG
        fields.reconsume_times = get32(half + parts.body_at - 16)
        fields.born_ms = get64(half + RecordLayout.BORN_MS_AT)
        fields.prepared_offset = wanted.physical_offset
        fields.properties_size = <int32_t>wanted.kept_size
        size = encoded_size(
            fields.topic_size, fields.body_size, 0,
            fields.born_host_size + fields.store_host_size,
        )
        fields.properties = self.table.staged_end() + size
        _copy_kept(
            <uint8_t *>fields.properties, half + parts.properties_at,
            parts.properties_size,
        )
        self.table.stage_record(
            fields, queue,
            tags_code_of(fields.properties, fields.properties_size),
        )

    cdef void record_end(
        self, const EndRequest *wanted, void *target
    ) noexcept with gil:
        """Record the commit until the poll ends."""
        cdef int64_t age_ms
        if not self.offsets:
            self.lost_polls = self.table.lost_polls
        self.offsets.append(wanted.queue_offset)
        age_ms = wanted.fields.store_ms - wanted.fields.born_ms
        self.ages.append(((<EndTarget>target).queue.topic, age_ms // 1000))

    cdef bint end_of_poll(self) noexcept nogil:
        """Write the messages of this poll, and report the ends."""
        cdef bint is_written
        if self.table is None:
            return True
        is_written = self.table.commit()
        self.report_ends(is_written and self.table.lost_polls == self.lost_polls)
        return is_written

    cdef void report_ends(self, bint is_written) noexcept with gil:
        if self.offsets:
            offsets, ages = self.offsets, self.ages
            self.offsets, self.ages = [], []
            self.on_end(offsets, ages, is_written)


cdef void _copy_kept(uint8_t *out, const uint8_t *text, int64_t size) noexcept nogil:
    """Copy complete properties without REAL_TOPIC and REAL_QID."""
    cdef const uint8_t *end = text + size
    cdef const uint8_t *stop
    cdef const uint8_t *start = text
    while text < end:
        stop = find_byte(text, end, 2) + 1
        if (stop - text > 11 and memcmp(text, b"REAL_TOPIC\1", 11) == 0) or (
            stop - text > 9 and memcmp(text, b"REAL_QID\1", 9) == 0
        ):
            memcpy(out, start, text - start)
            out += text - start
            start = stop
        text = stop
    memcpy(out, start, end - start)
