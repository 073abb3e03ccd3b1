from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.log.claim cimport Claim
from rmq._fastpath.log.decode cimport RecordParts
from rmq._fastpath.log.encode cimport RecordEncoder, RecordFields
from rmq._fastpath.log.log_writer cimport LogWriter
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.new_keys cimport NewKeys
from rmq._fastpath.log.queue_tail cimport QueueTail

cdef enum:
    COPY_LIMIT = 64             # maximum records that one write copies

cdef struct Copy:
    PyObject *queue             # borrowed
    int64_t physical_offset
    int64_t tags_code
    int32_t size

cdef struct Copies:             # copies of records, staged
    Copy all[COPY_LIMIT]
    int32_t count

cdef class LogTail:
    cdef readonly RecordEncoder encoder
    cdef public MappedFile file  # file of the next record; None before the first record
    cdef public LogWriter writer        # None: appends go to the file
    cdef public Claim claim             # None: there is no claim
    cdef public NewKeys new_keys        # None: there is no index
    cdef public int64_t last_store_ms
    cdef public int64_t busy_limit_ms   # time that senders wait for room in the ring
    cdef int64_t full_since_ms          # 0: the ring has room for senders
    cdef public bint always_pwrite
    cdef public bint is_writable        # False: compiled handlers decline
    cdef readonly int64_t put_messages
    cdef readonly int64_t put_bytes
    cdef list touched
    cdef bint has_room(self, int64_t size) noexcept nogil
    cdef bint must_wait(self, int64_t now_ms) noexcept nogil
    cdef int64_t next_record_offset(self) noexcept nogil
    cdef int write(self, int64_t count) except -1
    cdef int write_to_ring(self, int64_t size) except -1
    cdef void collect_keys(self, int64_t size, int64_t offset) noexcept nogil
    cdef int touch(self, QueueTail queue) except -1
    cdef bint stage_copy(
        self,
        dict queues,
        const uint8_t *record,
        const RecordParts *parts,
        bytes added,
        int64_t store_ms,
        Copies *copies,
    ) except -1
    cdef int write_copies(self, const Copies *copies, int64_t store_ms) except -1
