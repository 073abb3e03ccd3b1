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
    NAME_LIMIT = 32  # maximum number of properties with which Python serves a commit

cdef struct EndRequest:         # the values of a request
    int64_t queue_offset        # offset of the half message in its queue
    int64_t physical_offset
    const uint8_t *half         # record of the half message
    RecordParts parts
    Name topic                  # topic of the message
    Name queue_id
    int64_t kept_size           # size of the properties that the message keeps
    RecordFields fields

cdef class EndTarget:
    cdef QueueTail queue
    cdef TopicWatch watch

cdef class EndPath(NativeHandler):
    cdef public SendTable table     # None: Python serves all requests
    cdef LogReader reader
    cdef Watermark visible          # limit of visible records; None: the end of the log
    cdef HalfSends halves
    cdef object on_begin
    cdef object on_end
    cdef int32_t version
    cdef dict targets               # EndTarget by topic, 1, queue id
    cdef list offsets  # offsets of the half messages committed in this poll
    cdef list ages  # their topics, and the seconds since their born time
    cdef int64_t lost_polls         # `lost_polls` of the table before the first message
    cdef list declined              # keeps the bytes of `names` alive
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
