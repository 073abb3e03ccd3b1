"""The writable ends of the store: of the log, and of each queue.

What an append needs is here, so that it is one call: is there room, where does the
record go, write it and its queue entry, publish both.  Without room nothing happens and
the caller, who knows files and disks, makes some.
Invariants: the entry is written after its record and published with it; `next_offset`
is 20 bytes of entry for each message; a queue is in `touched` from its first append
until somebody takes the list.
Belongs to the thread that owns the store.
"""

from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int32_t, int64_t

from rmq._fastpath.append cimport (
    PWRITE_FROM,
    RecordEncoder,
    RecordFields,
    encoded_size,
    store_entry,
)
from rmq._fastpath.layout cimport QueueEntryLayout, RecordLayout
from rmq._fastpath.mapped_file cimport MappedFile

cdef enum:
    LOOK_AHEAD = 256 * 1024     # more than the entries of one poll


cdef class QueueTail:
    """Where the next message of one queue gets its entry."""

    def __init__(self, str topic not None, int32_t queue_id):
        self.topic = topic
        self.topic_bytes = topic.encode()
        self.queue_id = queue_id
        self.end_physical = -1

    cdef bint has_room(self) noexcept nogil:
        return (
            self.file is not None
            and self.file.address != NULL
            and not self.is_deleted
            and self.file._write_position + QueueEntryLayout.ENTRY_SIZE
            <= self.file.allocated
        )

    cdef bint has_room_to_spare(self) noexcept nogil:
        """True if one more message can be staged that does not fill the file."""
        cdef int64_t size = (self.staged + 1) * QueueEntryLayout.ENTRY_SIZE
        return (
            self.has_room()
            and self.file._write_position + size <= self.file.allocated
            and self.file._write_position + size < self.file.size
        )

    @property
    def wants_blocks(self):
        """True if the file has more to give and the writer comes near its blocks."""
        cdef int64_t rest
        if self.file is None or self.file.allocated >= self.file.size:
            return False
        rest = self.file.allocated - self.file._write_position
        return rest < LOOK_AHEAD and 2 * rest < self.file.allocated

    cdef int64_t stage(self) noexcept nogil:
        """Take the offset of a message that `publish` writes at the end of the poll."""
        self.staged += 1
        return self.next_offset + self.staged - 1

    cdef void end_staging(self) noexcept nogil:
        self.staged = 0

    cpdef int64_t publish(
        self, int64_t physical_offset, int32_t size, int64_t tags_code
    ) except -1:
        """Write and count the entry of a record; its queue offset."""
        cdef MappedFile file = self.file
        cdef int64_t offset = self.next_offset
        if file is None:
            raise ValueError(f"{self.topic} queue {self.queue_id} has no file")
        store_entry(file, file._write_position, physical_offset, size, tags_code)
        file._write_position += QueueEntryLayout.ENTRY_SIZE
        if file._write_position == file.size:
            file.expect_writes(writing=False)
            self.file = None
        self.end_physical = physical_offset + size
        self.next_offset = offset + 1
        return offset


cdef class LogTail:
    """Where the next record goes, and what has been written since the start."""

    def __init__(self, RecordEncoder encoder not None):
        self.encoder = encoder
        self.touched = []

    @property
    def end_offset(self):
        """Where the next record begins, if it fits."""
        return 0 if self.file is None else (
            self.file.base_offset + self.file._write_position
        )

    cdef int64_t next_offset(self) noexcept nogil:
        """Where the next staged record will be; there is room for it."""
        return (
            self.file.base_offset
            + self.file._write_position
            + self.encoder.staged_size
        )

    cdef bint has_room(self, int64_t size) noexcept nogil:
        cdef int64_t end
        if self.file is None or self.file.address == NULL:
            return False
        end = self.file._write_position + self.encoder.staged_size + size
        return (
            end <= self.file.allocated
            and end + RecordLayout.BLANK_SIZE <= self.file.size
        )

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
        """Write a record, and its entry if it is queued.

        Returns (queue offset, physical offset, end of the record), or None without
        room in the log or the queue: nothing was written.  `tags_code` replaces the
        hash of its tags unless it is None.  After an OSError nothing was published.
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
        if not self.has_room(size) or is_queued and not queue.has_room():
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

    def commit(self, int64_t count):
        """Write what the encoder has staged, `count` records; the new end offset."""
        if self.file is None:
            raise ValueError("the log has no file")
        self.write(count)
        return self.end_offset

    cdef int write(self, int64_t count) except -1:
        cdef int64_t size = self.encoder.staged_size
        self.encoder.commit(self.file, self.always_pwrite or size >= PWRITE_FROM)
        self.put_messages += count
        self.put_bytes += size
        return 0

    cdef int touch(self, QueueTail queue) except -1:
        queue.is_touched = True
        self.touched.append(queue)
        return 0

    def mark_touched(self, QueueTail queue not None):
        """Tell that a queue has new entries."""
        if not queue.is_touched:
            self.touch(queue)

    def take_touched(self):
        """Return the queues that got entries since the last call."""
        cdef list taken = self.touched
        cdef QueueTail queue
        if taken:
            self.touched = []
            for queue in taken:
                queue.is_touched = False
        return taken
