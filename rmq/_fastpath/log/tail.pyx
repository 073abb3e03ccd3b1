"""LogTail: the writable end of the log.

An append is one call: it checks the room, encodes and writes the record and its queue
entry, and publishes both. Without room it changes nothing; the caller adds a file or
waits for the disk, and calls again.
Invariants: the entry is published after its record is written; a queue is in `touched`
from its first append until `take_touched`.
Belongs to the thread that owns the store.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.string cimport memchr, memcmp, memcpy

from rmq._fastpath.bytes.ascii cimport read_decimal
from rmq._fastpath.bytes.endian cimport get32, get64
from rmq._fastpath.log.decode cimport OK, RecordParts, split_record
from rmq._fastpath.log.encode cimport (
    PWRITE_FROM,
    RecordEncoder,
    RecordFields,
    encode_record,
    encoded_size,
    tags_code_of,
)
from rmq._fastpath.log.layout cimport RecordFlag, RecordLayout
from rmq._fastpath.log.log_writer cimport LogWriter
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail

cdef enum:
    TARGET_LIMIT = 300          # maximum bytes of a topic and a queue id
    ADDED_LIMIT = 100           # maximum bytes of the properties that a timer adds


cdef int32_t _read_target(
    const uint8_t *p, int64_t size, uint8_t *target
) noexcept nogil:
    """Write REAL_TOPIC, 1 and REAL_QID to `target`; return its size, -1 if not plain.
    """
    cdef const uint8_t *end = p + size
    cdef const uint8_t *stop
    cdef const uint8_t *topic = NULL
    cdef const uint8_t *queue = NULL
    cdef int64_t topic_size = 0, queue_size = 0
    while p < end:
        stop = <const uint8_t *>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        if stop - p > 11 and memcmp(p, b"REAL_TOPIC\x01", 11) == 0:
            if topic != NULL:
                return -1
            topic, topic_size = p + 11, stop - p - 11
        elif stop - p > 9 and memcmp(p, b"REAL_QID\x01", 9) == 0:
            if queue != NULL:
                return -1
            queue, queue_size = p + 9, stop - p - 9
        p = stop + 1
    if topic == NULL or queue == NULL or topic_size + queue_size >= TARGET_LIMIT:
        return -1
    memcpy(target, topic, topic_size)
    target[topic_size] = 1
    memcpy(target + topic_size + 1, queue, queue_size)
    return <int32_t>(topic_size + 1 + queue_size)


cdef PyObject *_find_target(
    dict queues, const uint8_t *record, const RecordParts *parts
) except? NULL:
    """Return the target queue of a record, borrowed; NULL if it is not to be copied."""
    cdef uint8_t target[TARGET_LIMIT]
    cdef int32_t kind = parts.sys_flag & RecordFlag.TRANSACTION_MASK
    cdef int32_t size = _read_target(
        record + parts.properties_at, parts.properties_size, target
    )
    if size < 0 or kind in (
        RecordFlag.TRANSACTION_PREPARED, RecordFlag.TRANSACTION_ROLLBACK
    ):
        return NULL
    return PyDict_GetItem(queues, PyBytes_FromStringAndSize(<char *>target, size))


cdef int64_t _read_time(const uint8_t *p, int64_t size) noexcept nogil:
    """Return TIMER_OUT_MS; -1 if it is not plain or the record has timer properties."""
    cdef const uint8_t *end = p + size
    cdef const uint8_t *stop
    cdef int64_t time_ms = -1
    if size == 0 or (end - 1)[0] != 2:
        return -1
    while p < end:
        stop = <const uint8_t *>memchr(p, 2, end - p)
        if stop - p > 13 and memcmp(p, b"TIMER_OUT_MS\x01", 13) == 0:
            if time_ms >= 0 or not read_decimal(
                p + 13, stop - p - 13, 0, INT64_MAX, &time_ms
            ):
                return -1
        elif stop - p > 11 and memcmp(p, b"TIMER_", 6) == 0 and (
            memcmp(p + 6, b"ENQUEUE", 5) == 0
            or memcmp(p + 6, b"DEQUEUE", 5) == 0
            or memcmp(p + 6, b"ROLL_", 5) == 0
        ):
            return -1
        p = stop + 1
    return time_ms


cdef void _end_staging(const Copies *copies) noexcept:
    cdef int32_t i
    for i in range(copies.count):
        (<QueueTail>copies.all[i].queue).end_staging()


cdef class LogTail:
    """The end of the log, with counters since the start."""

    def __init__(self, RecordEncoder encoder not None):
        self.encoder = encoder
        self.touched = []

    @property
    def end_offset(self):
        """*appended*: where the next record begins, if it fits."""
        return 0 if self.file is None else (
            self.file.base_offset + self.file._write_position
        )

    cdef int64_t next_record_offset(self) noexcept nogil:
        """Return the offset of the next staged record; the caller has checked the room.
        """
        return (
            self.file.base_offset
            + self.file._write_position
            + self.encoder.staged_size
        )

    cdef bint has_room(self, int64_t size) noexcept nogil:
        cdef int64_t end
        if self.file is None or self.file.address == NULL:
            return False
        if self.writer is not None and self.encoder.staged_size + size > min(
            self.writer.ring.margin, self.writer.ring.free_bytes()
        ):
            return False
        end = self.file._write_position + self.encoder.staged_size + size
        return (
            end <= self.file.allocated
            and end + RecordLayout.BLANK_SIZE <= self.file.size
        )

    cdef bint must_wait(self, int64_t now_ms) noexcept nogil:
        """True while senders wait for the disk: the ring is nearly full.

        The remaining room is for messages without a waiting sender, and for senders
        that have waited too long. When this room is used up, such messages are refused.
        """
        if self.writer is None:
            return False
        if self.writer.ring.free_bytes() >= self.writer.ring.margin:
            self.full_since_ms = 0
            return False
        if self.full_since_ms == 0:
            self.full_since_ms = now_ms
        if now_ms - self.full_since_ms >= self.busy_limit_ms:
            return False
        self.writer.wake_reactor_later()
        return True

    def append(
        self,
        QueueTail queue not None,
        bint is_queued,
        int32_t flag,
        int32_t sys_flag,
        int64_t born_ms,
        bytes born_host not None,
        int64_t store_ms,
        int32_t reconsume_times,
        int64_t prepared_offset,
        bytes body not None,
        str properties not None,
        object tags_code,
    ):
        """Append a record, and its entry if it is queued.

        Returns (queue offset, physical offset, end of the record). None means that log
        or queue has no room and nothing was written. `tags_code` replaces the hash of
        its tags unless it is None. After an OSError nothing was published.
        """
        cdef RecordFields fields
        cdef RecordEncoder encoder = self.encoder
        cdef Py_ssize_t properties_size
        cdef int64_t code = 0 if tags_code is None else tags_code
        cdef int64_t offset, size, queue_offset
        fields.properties = <const unsigned char *>PyUnicode_AsUTF8AndSize(
            properties, &properties_size
        )
        fields.properties_size = <int32_t>properties_size
        size = encoded_size(
            len(queue.topic_bytes), len(body), properties_size,
            len(born_host) + len(encoder.store_host),
        )
        encoder.discard()
        if not self.has_room(size) or is_queued and not queue.has_room_for(1):
            return None
        offset = self.file.base_offset + self.file._write_position
        queue_offset = queue.next_offset if is_queued else 0
        fields.queue_id = queue.queue_id
        fields.flag = flag
        fields.sys_flag = sys_flag
        fields.reconsume_times = reconsume_times
        fields.queue_offset = queue_offset
        fields.physical_offset = offset
        fields.born_ms = born_ms
        fields.store_ms = store_ms
        fields.prepared_offset = prepared_offset
        encoder.stage_fields(&fields, queue.topic_bytes, born_host, body)
        if tags_code is None:
            code = encoder.tags_code
        self.last_store_ms = store_ms
        self.write(1)
        if is_queued:
            queue.publish(offset, <int32_t>size, code)
            if not queue.is_touched:
                self.touch(queue)
        return queue_offset, offset, offset + size

    def append_copies(
        self,
        dict queues not None,
        const uint8_t[::1] records not None,
        int64_t position,
        int64_t stored_until_ms,
        int64_t store_ms,
    ):
        """Append copies of records, each to the queue that its properties name.

        `queues` has REAL_TOPIC, a byte 1 and REAL_QID as keys. Begins at `position` and
        copies at most 64 by one write. Ends before a record that was stored after
        `stored_until_ms`, has another target, would not be queued, or has no room.
        Returns the position and the queue offset after the last one, or None if it
        copied nothing. After an OSError nothing was published.
        """
        cdef Copies copies
        cdef RecordParts parts
        cdef int64_t readable = records.shape[0], following = 0
        copies.count = 0
        self.encoder.discard()
        try:
            while copies.count < COPY_LIMIT and 0 <= position < readable:
                if split_record(
                    &records[position], readable - position, False, &parts
                ) != OK or parts.store_ms > stored_until_ms:
                    break
                if not self.stage_copy(
                    queues, &records[position], &parts, b"", store_ms, &copies
                ):
                    break
                position += parts.size
                following = parts.queue_offset + 1
            self.write_copies(&copies, store_ms)
        finally:
            _end_staging(&copies)
        return (position, following) if copies.count else None

    def append_timed(
        self,
        dict queues not None,
        list records not None,
        list added not None,
        int64_t first,
        int64_t from_ms,
        int64_t until_ms,
        int64_t store_ms,
    ):
        """Append copies of timed records, each to the queue that its properties name.

        `queues` is as for `append_copies`; each copy gets its properties of `added`.
        Begins at index `first` and copies at most 64 by one write. Ends before a record
        whose TIMER_OUT_MS is not within [from_ms, until_ms), or that a timer has
        delivered once. It also ends before a record that has another target, would not
        be queued, or has no room. Returns the number of copies. After an OSError
        nothing was published.
        """
        cdef Copies copies
        cdef RecordParts parts
        cdef int64_t time_ms
        cdef bytes record, text
        cdef const uint8_t *data
        copies.count = 0
        self.encoder.discard()
        try:
            while copies.count < COPY_LIMIT and first < len(records):
                record, text = records[first], added[first]
                data = record
                if len(text) > ADDED_LIMIT or split_record(
                    data, len(record), False, &parts
                ) != OK:
                    break
                time_ms = _read_time(data + parts.properties_at, parts.properties_size)
                if not from_ms <= time_ms < until_ms or not self.stage_copy(
                    queues, data, &parts, text, store_ms, &copies
                ):
                    break
                first += 1
            self.write_copies(&copies, store_ms)
        finally:
            _end_staging(&copies)
        return copies.count

    cdef bint stage_copy(
        self,
        dict queues,
        const uint8_t *record,
        const RecordParts *parts,
        bytes added,
        int64_t store_ms,
        Copies *copies,
    ) except -1:
        """Stage a copy of a record with `added` properties; False if refused."""
        cdef uint8_t text[RecordLayout.PROPERTIES_LIMIT + ADDED_LIMIT]
        cdef RecordEncoder encoder = self.encoder
        cdef RecordFields fields
        cdef PyObject *found = _find_target(queues, record, parts)
        cdef Copy *copy = &copies.all[copies.count]
        cdef QueueTail queue
        cdef int64_t size
        if found == NULL:
            return False
        queue = <QueueTail?>(<object>found)
        fields.properties = record + parts.properties_at
        fields.properties_size = parts.properties_size + <int32_t>len(added)
        if len(added):
            memcpy(text, fields.properties, parts.properties_size)
            memcpy(text + parts.properties_size, <const uint8_t *>added, len(added))
            fields.properties = text
        size = encoded_size(
            len(queue.topic_bytes), parts.body_size, fields.properties_size,
            parts.born_host_size + len(encoder.store_host),
        )
        if fields.properties_size > RecordLayout.PROPERTIES_LIMIT or not (
            self.has_room(size) and queue.has_room_for(1)
        ):
            return False
        fields.topic = queue.topic_bytes
        fields.topic_size = <int32_t>len(queue.topic_bytes)
        fields.body = record + parts.body_at
        fields.body_size = parts.body_size
        fields.born_host = record + RecordLayout.BORN_HOST_AT
        fields.born_host_size = parts.born_host_size
        fields.store_host = encoder.store_host
        fields.store_host_size = <int32_t>len(encoder.store_host)
        fields.queue_id = queue.queue_id
        fields.flag = get32(record + RecordLayout.FLAG_AT)
        fields.sys_flag = parts.sys_flag
        fields.reconsume_times = get32(record + parts.body_at - 16)
        fields.physical_offset = self.next_record_offset()
        fields.born_ms = get64(record + RecordLayout.BORN_MS_AT)
        fields.store_ms = store_ms
        fields.prepared_offset = 0
        encoder.reserve(size)
        fields.queue_offset = queue.stage()
        encode_record(encoder.staging + encoder.staged_size, &fields)
        encoder.staged_size += size
        copy.queue = found
        copy.physical_offset = fields.physical_offset
        copy.size = <int32_t>size
        copy.tags_code = tags_code_of(fields.properties, fields.properties_size)
        copies.count += 1
        return True

    cdef int write_copies(self, const Copies *copies, int64_t store_ms) except -1:
        """Write and publish the staged copies, if there are any."""
        cdef QueueTail queue
        cdef int32_t i
        if copies.count == 0:
            return 0
        self.last_store_ms = store_ms
        self.write(copies.count)
        for i in range(copies.count):
            queue = <QueueTail>copies.all[i].queue
            queue.publish(
                copies.all[i].physical_offset, copies.all[i].size,
                copies.all[i].tags_code,
            )
            if not queue.is_touched:
                self.touch(queue)
        return 0

    def commit(self, int64_t count):
        """Write the `count` staged records and return the new end offset."""
        if self.file is None:
            raise ValueError("the log has no file")
        self.write(count)
        return self.end_offset

    cdef int write(self, int64_t count) except -1:
        cdef int64_t size = self.encoder.staged_size
        cdef int64_t offset = self.file.base_offset + self.file._write_position
        if self.writer is None:
            self.encoder.commit(self.file, self.always_pwrite or size >= PWRITE_FROM)
        else:
            self.write_to_ring(size)
        self.put_messages += count
        self.put_bytes += size
        self.collect_keys(size, offset)
        if self.claim is not None and self.claim.is_begun:
            self.claim.store(self.file.base_offset + self.file._write_position)
        return 0

    cdef void collect_keys(self, int64_t size, int64_t offset) noexcept nogil:
        """Collect the keys of the written records, which are still in the staging
        buffer.
        """
        if self.new_keys is not None:
            self.new_keys.collect_records(self.encoder.staging, size, offset)

    cdef int write_to_ring(self, int64_t size) except -1:
        """Copy the staged bytes to the ring: no system call, no new page, no lock."""
        cdef LogWriter writer = self.writer
        cdef int64_t pending = writer.pending()
        if size > min(writer.ring.margin, writer.ring.free_bytes()):
            raise ValueError(f"the ring has no room for {size} bytes")
        writer.ring.append(self.encoder.staging, size)
        self.file._write_position += size
        self.encoder.staged_size = 0
        writer.wake_for_append(pending)
        return 0

    def end_file(self):
        """Append the blank record that ends the file, which has room for it."""
        cdef MappedFile file = self.file
        cdef int64_t rest = file.size - file._write_position
        cdef int64_t offset = file.base_offset + file._write_position
        self.encoder.discard()
        self.encoder.stage_blank(rest)
        if self.writer is None:
            self.encoder.commit(file, self.always_pwrite)
        else:
            self.write_to_ring(RecordLayout.BLANK_SIZE)
            self.writer.ring.append_zeros(rest - RecordLayout.BLANK_SIZE)
        self.collect_keys(RecordLayout.BLANK_SIZE, offset)
        file._write_position = file.size

    cdef int touch(self, QueueTail queue) except -1:
        queue.is_touched = True
        self.touched.append(queue)
        return 0

    def mark_touched(self, QueueTail queue not None):
        """Record that a queue has new entries."""
        if not queue.is_touched:
            self.touch(queue)

    def take_touched(self):
        """Return the queues that got entries since the last call."""
        cdef list touched = self.touched
        cdef QueueTail queue
        for queue in touched:
            queue.is_touched = False
        if touched:
            self.touched = []
            return touched
        return []
