from libc.stdint cimport int32_t, int64_t, uint8_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.diversion cimport HalfSends
from rmq._fastpath.handlers.send_table cimport SendTable
from rmq._fastpath.log.decode cimport RecordParts
from rmq._fastpath.log.encode cimport RecordFields
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.queue_tail cimport QueueTail, TopicWatch
from rmq._fastpath.log.watermark cimport Watermark
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Verdict

cdef enum:
    NAME_LIMIT = 32             # properties with which Python serves a commit

cdef struct EndRequest:         # the values of a request
    int64_t queue_offset        # of the half message
    int64_t physical_offset
    const uint8_t *half         # its record
    RecordParts parts
    Name topic                  # of the message
    Name queue_id
    int64_t kept_size           # of its properties
    RecordFields fields

cdef class EndTarget:
    cdef QueueTail queue
    cdef TopicWatch watch

cdef class EndPath(NativeHandler):
    cdef public SendTable table     # None: Python serves everything
    cdef LogReader reader
    cdef Watermark visible          # None: the log's end
    cdef HalfSends halves
    cdef object on_begin
    cdef object on_end
    cdef int32_t version
    cdef dict targets               # by topic, 1, queue id
    cdef list offsets               # of the half messages committed in this poll
    cdef list ages                  # their topics, and seconds since they were born
    cdef int64_t lost_polls         # `lost_polls` of the table before the first message
    cdef list declined              # keeps what `names` points to alive
    cdef Name names[NAME_LIMIT]
    cdef int32_t name_count

    cdef bint read_header(self, const Frame *frame, EndRequest *wanted) noexcept nogil
    cdef bint find_half(self, EndRequest *wanted) noexcept nogil
    cdef bint read_properties(
        self, const Frame *frame, EndRequest *wanted
    ) noexcept nogil
    cdef void *find_target(self, const EndRequest *wanted) noexcept with gil
    cdef bint may_begin(self, const EndRequest *wanted) noexcept with gil
    cdef void stage(self, EndRequest *wanted, void *queue) noexcept nogil
    cdef void record_end(
        self, const EndRequest *wanted, void *target
    ) noexcept with gil
    cdef void report_ends(self, bint is_written) noexcept with gil
