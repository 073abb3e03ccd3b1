"""QueueDispatcher: adds queue entries for records of the log, at a start and on a
slave.

It adds an entry that is the next entry of a known queue, and skips records that have
their entry. It stops before every other record and leaves it to Python. Such a record
belongs to an unknown queue, or comes after a gap, or its topic needs more than the hash
of its tags. A record of 300 bytes takes 0.5 us, most of it for the checksum.
Belongs to the thread that owns the store.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcmp

from rmq._fastpath.bytes.endian cimport get64
from rmq._fastpath.log.decode cimport (
    BAD_OFFSET,
    OK,
    RecordParts,
    RecordStatus,
    split_record,
)
from rmq._fastpath.log.encode cimport tags_code_of
from rmq._fastpath.log.layout cimport RecordFlag
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.tail cimport LogTail

from typing import NamedTuple

from rmq._fastpath.log.decode import RecordStatus as Status

cdef extern from "string.h":
    void *memmem(const void *, size_t, const void *, size_t) nogil

cdef enum:
    QUEUE_LIMIT = 4096          # queues with higher numbers are left to Python
    INNER_BATCH = 0x80
    RECORD_LIMIT = 100_000      # maximum records of one call: about 50 ms
    PREPARED_BEFORE = 12        # bytes before the body: prepared offset, body size

cdef uint64_t LOST_MARK = 0x524D514C4F535401ULL    # see rmq/store/tombstone.py

cdef enum:                      # outcome for one record
    PASSED = 0
    ADDED = 1
    LEFT = 2                    # to Python


class DispatchResult(NamedTuple):
    """Result of `QueueDispatcher.run`.

    `first_offset` is the offset of the first record that got an entry, or -1.
    """

    status: Status
    position: int
    records: int
    entries: int
    first_offset: int
    store_ms: int
    is_stopped: bool


cdef class _Topic:
    cdef bytes name
    cdef int64_t skip_before        # records before it get no entries
    cdef list queues                # by number; None: not known


@cython.final
cdef class QueueDispatcher:
    """The known queues, by the names of their topics."""

    cdef dict topics
    cdef _Topic last                # topic of the record before
    cdef LogTail log                # lists the queues with new entries
    cdef bytes mark                 # text in the properties of records for Python

    def __cinit__(self, LogTail log=None, bytes mark=b""):
        """`log` gets the touched queues if readers already run.

        Python dispatches records with `mark` in their properties.
        """
        self.topics = {}
        self.mark = mark
        self.log = log

    cdef _Topic get_topic(self, bytes name):
        cdef _Topic topic = self.topics.get(name)
        if topic is None:
            topic = self.topics[name] = _Topic()
            topic.name = name
            topic.queues = []
        return topic

    def add(self, QueueTail queue not None):
        """Dispatch to this queue from now on."""
        cdef _Topic topic = self.get_topic(queue.topic_bytes)
        cdef int64_t missing = queue.queue_id + 1 - len(topic.queues)
        if queue.queue_id < QUEUE_LIMIT:
            topic.queues.extend([None] * missing)
            topic.queues[queue.queue_id] = queue

    def skip(self, bytes topic not None, int64_t before):
        """Skip the records of a topic before an offset."""
        self.get_topic(topic).skip_before = before

    cdef _Topic find(self, const uint8_t *name, int64_t size):
        cdef _Topic topic = self.last
        if topic is None or len(topic.name) != size or memcmp(
            <const char *>topic.name, name, size
        ):
            topic = self.topics.get(PyBytes_FromStringAndSize(<const char *>name, size))
            if topic is not None:
                self.last = topic
        return topic

    cdef int dispatch(self, const uint8_t *p, const RecordParts *parts) except -1:
        """Add the entry of a record if it needs one: ADDED, PASSED or LEFT."""
        cdef int64_t end = parts.physical_offset + parts.size
        cdef int32_t kind = parts.sys_flag & RecordFlag.TRANSACTION_MASK
        cdef _Topic topic
        cdef QueueTail queue = None
        if (
            kind == RecordFlag.TRANSACTION_PREPARED
            or kind == RecordFlag.TRANSACTION_ROLLBACK
        ):
            return PASSED
        if get64(p + parts.body_at - PREPARED_BEFORE) == LOST_MARK:
            return LEFT
        if parts.sys_flag & INNER_BATCH or self.mark and memmem(
            p + parts.properties_at, parts.properties_size,
            <const char *>self.mark, len(self.mark),
        ) != NULL:
            return LEFT
        topic = self.find(p + parts.topic_at, parts.topic_size)
        if topic is None:
            return LEFT
        if parts.physical_offset < topic.skip_before:
            return PASSED
        if 0 <= parts.queue_id < len(topic.queues):
            queue = topic.queues[parts.queue_id]
        if queue is None or queue.is_deleted:
            return LEFT
        if end <= queue.end_physical:
            return PASSED
        if parts.queue_offset != queue.next_offset:
            return LEFT
        queue.publish(
            parts.physical_offset,
            <int32_t>parts.size,
            tags_code_of(p + parts.properties_at, parts.properties_size),
        )
        if self.log is not None and not queue.is_touched:
            self.log.touch(queue)
        return ADDED

    def run(
        self,
        MappedFile file not None,
        int64_t position,
        int64_t end,
        *,
        int check_crc=1,
    ):
        """Check and dispatch records in [position, end); see `DispatchResult`.

        The status is OK if it stopped before a record for Python, or at a limit.
        Otherwise it is the reason why there is no valid record at the position.
        """
        cdef RecordParts parts
        cdef RecordStatus status = OK
        cdef const uint8_t *p
        cdef int64_t records = 0, entries = 0, first = -1, store_ms = 0
        cdef int outcome = PASSED
        file.check_range(position, end - position, file.size)
        while position < end and records < RECORD_LIMIT:
            p = file.address + position
            status = split_record(p, end - position, check_crc, &parts)
            if status == OK and parts.physical_offset != file.base_offset + position:
                status = BAD_OFFSET
            if status != OK:
                break
            outcome = self.dispatch(p, &parts)
            if outcome == LEFT:
                break
            if outcome == ADDED:
                if entries == 0:
                    first = parts.physical_offset
                entries += 1
            records += 1
            store_ms = parts.store_ms
            position += parts.size
        return DispatchResult(
            Status(status), position, records, entries, first, store_ms,
            outcome == LEFT,
        )
