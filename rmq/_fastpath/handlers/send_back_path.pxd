from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from rmq._fastpath.bytes.name_table cimport Name
from rmq._fastpath.handlers.diversion cimport DelayedSends, Place
from rmq._fastpath.handlers.send_table cimport SendTable
from rmq._fastpath.log.decode cimport RecordParts
from rmq._fastpath.log.encode cimport RecordFields
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.queue_tail cimport QueueTail, TopicWatch
from rmq._fastpath.log.watermark cimport Watermark
from rmq._fastpath.reactor.native cimport Conn, Frame, NativeHandler, Text, Verdict

cdef enum:
    # maximum number of properties with which Python serves a message
    DECLINED_LIMIT = 32
    DIGITS_LIMIT = 20           # maximum digits of a number
    ID_LIMIT = 64               # bytes of a message id

cdef enum:  # properties of a retry, in the order in which new ones are written
    RETRY_TOPIC = 0             # the first two properties are never replaced
    ORIGIN_ID = 1
    WAIT = 2
    DELAY = 3
    REAL_TOPIC = 4
    REAL_QUEUE_ID = 5
    OWN_COUNT = 6

cdef struct BackRequest:        # one request on its way through `serve`
    int64_t offset              # physical offset of the record
    int64_t level  # delay level; 0: the broker chooses it; negative: a dead letter
    int64_t limit               # maximum attempts; INT64_MAX: the limit of the group
    void *group
    const uint8_t *record
    RecordParts parts
    int64_t attempts            # number of attempts before this one
    bint is_dead                # the message is stored in the dead-letter topic
    # values of the own properties; no data: the property is absent
    Name values[OWN_COUNT]
    uint32_t found              # bit i: the record has the own property i
    uint8_t origin_id[ID_LIMIT]
    uint8_t level_text[DIGITS_LIMIT]
    uint8_t queue_text[DIGITS_LIMIT]
    void *queue                 # queue in which the message is stored
    Place place
    RecordFields fields

cdef class BackGroup:
    cdef str name
    cdef bytes retry_topic
    cdef const uint8_t *retry   # name of the retry topic
    cdef int32_t retry_size
    cdef int64_t queue_count    # number of retry queues that the group uses
    cdef int64_t limit          # maximum number of attempts
    cdef QueueTail dead_letters     # None: Python stores the next dead letter
    cdef const uint8_t *dead    # name of the dead-letter topic
    cdef int32_t dead_size
    cdef TopicWatch watch       # watch of the dead-letter topic

cdef class SendBackPath(NativeHandler):
    cdef SendTable table
    cdef LogReader reader
    cdef Watermark visible      # limit of visible records; None: the end of the log
    cdef DelayedSends delayed   # None: Python serves all requests
    cdef object choose_queue
    cdef object on_stored
    cdef int32_t version
    cdef dict groups            # BackGroup by the name as bytes
    cdef dict sources           # QueueTail by topic, 1, queue id
    cdef list stored            # (group, topic, is_dead) of this poll's messages
    cdef int64_t lost_polls     # `lost_polls` of the table before the first message
    cdef list declined          # keeps the bytes of `names` alive
    cdef Name names[DECLINED_LIMIT]
    cdef int32_t name_count

    cdef bint read_header(
        self, const Frame *frame, BackRequest *wanted
    ) noexcept nogil
    cdef void *find_group(self, const Text *name) noexcept with gil
    cdef int64_t readable_end(self) noexcept nogil
    cdef bint find_record(self, BackRequest *wanted) noexcept nogil
    cdef bint has_entry(self, const BackRequest *wanted) noexcept with gil
    cdef bint read_properties(self, BackRequest *wanted) noexcept nogil
    cdef Verdict stage(self, Conn *conn, BackRequest *wanted) noexcept nogil
    cdef bint find_place(self, BackRequest *wanted) noexcept nogil
    cdef bint find_dead_letters(self, BackRequest *wanted) noexcept nogil
    cdef void choose_retry_queue(self, BackRequest *wanted) noexcept nogil
    cdef void fill_fields(self, BackRequest *wanted) noexcept nogil
    cdef void record_stored(self, const BackRequest *wanted) noexcept with gil
    cdef void report_stored(self, bint is_written) noexcept with gil
