from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.bytes.name_table cimport Name, NameTable
from rmq._fastpath.bytes.unique_keys cimport UniqueKeys
from rmq._fastpath.handlers.once_table cimport OnceTable
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.log.encode cimport RecordFields
from rmq._fastpath.log.queue_tail cimport QueueTail, TopicWatch
from rmq._fastpath.log.tail cimport LogTail

cdef enum:
    PROPERTY_LIMIT = 128        # Python serves messages with more properties
    UNIQUE_KEY_LIMIT = 256
    PENDING_LIMIT = 8192  # maximum messages that a poll stages before it writes them
    QUEUE_LIMIT = 65536         # queues of a topic: as many as an admin may give it
    SPECIAL_LIMIT = 64
    INLINE_TAILS = 4            # queues of a topic that need no separate memory
    # number of messages for which queues are loaded into the cache early
    PREFETCH_DISTANCE = 4

cdef struct Pending:            # a message of this poll, staged and not yet written
    void *queue
    int64_t offset
    int64_t tags_code
    int32_t size

cdef enum Meaning:  # meaning of a property's name that `read_meaning` does not know
    DECLINED_NAME = 1           # Python serves messages with this property
    DIVERTS = 2                 # a diversion decides where the message is stored
    ADDRESS = 3                 # Python serves messages that a diversion would divert

cdef struct Special:
    Name name
    Meaning meaning
    void *diversion

cdef struct Properties:         # found by a scan of the stored text
    const uint8_t *unique_key   # NULL: the text has none
    int32_t unique_key_size
    int64_t tags_code
    bint waits                  # the answer waits for the disk, unless WAIT is false
    void *diversion             # NULL: no property that diverts
    Name diverting_name         # name of that property
    Name diverting_value
    bint has_address            # the message has the address of an earlier diversion

cdef class SendTopic:
    cdef int32_t flags          # system flags that the broker adds
    cdef int32_t queue_count    # writable queues, registered or not
    # time in which a key is stored once; 0: keys are not compared
    cdef int64_t once_window_ms
    cdef uint64_t once_hash     # hash of the topic, with which the hashes of keys begin
    cdef int32_t tail_count     # number of queue ids with a place in `tails`
    cdef void **tails           # queues by queue id; NULL: not known
    cdef void *inline_tails[INLINE_TAILS]   # memory of `tails` while it is large enough
    # count of requests in Python that wait for messages of the topic
    cdef TopicWatch watch
    cdef bytes key
    cdef list queues            # references that keep the tails alive
    cdef int register_queue(self, QueueTail queue) except -1

cdef class SendTable:
    cdef LogTail log
    cdef object now_ms
    cdef object on_failure
    cdef readonly bint waits_for_disk
    cdef readonly int64_t max_body_size
    cdef int32_t version
    cdef bytes store_host
    cdef const uint8_t *host
    cdef int32_t host_size
    cdef bytes id_prefix  # first part of a message id: the store host in hexadecimal
    cdef const uint8_t *id_text
    cdef bytes added            # properties that the broker adds to each text
    cdef const char *added_text
    cdef int64_t added_size
    cdef UniqueKeys keys        # makes keys for messages without a key
    cdef int64_t extra_size     # maximum bytes that are stored after a text
    cdef int32_t crc_size       # maximum bytes of a record's CRC; 0: records have none
    cdef ReplyFields facts      # ext fields of every reply
    cdef dict topics
    cdef NameTable names        # names of the topics, which their owner limits
    cdef public OnceTable once  # None: no topic stores a key once
    cdef list diversions        # keeps the diversions of `specials` alive
    cdef list special_texts     # keeps the names of `specials`
    cdef bytes declined_text
    cdef const char *text       # bytes of `declined_text`
    cdef int64_t text_size
    cdef Special specials[SPECIAL_LIMIT]
    cdef int32_t special_count
    # bit n: a special name of n bytes begins with this byte
    cdef uint64_t special_sizes[256]
    cdef Pending *pending
    cdef int64_t pending_count
    cdef int64_t pending_capacity
    cdef bint is_lost           # served messages of this poll could not be written
    cdef int64_t lost_polls     # number of such polls since the start
    cdef int64_t store_ms       # store time of this poll, 0 between polls

    cdef void *find_topic(self, const uint8_t *name, int32_t size) noexcept nogil
    cdef void read_clock(self) noexcept nogil
    cdef void forget_clock(self) noexcept nogil
    cdef bint read_properties(
        self, const uint8_t *text, int64_t size, Properties *found
    ) noexcept nogil
    cdef bint end_properties(
        self, RecordFields *fields, Properties *found
    ) noexcept nogil
    cdef int add_special(self, str text, Meaning meaning, void *diversion) except -1
    cdef const Special *special_of(self, const Name *name) noexcept nogil
    cdef bint read_meaning(
        self, const Name *name, const Name *value, Properties *found
    ) noexcept nogil
    cdef uint8_t *staged_end(self) noexcept nogil
    cdef bint has_room(self, int64_t count, int64_t size) noexcept nogil
    cdef bint has_room_for(self, void *queue, int64_t size) noexcept nogil
    cdef int64_t encode_next(self, RecordFields *fields, void *queue) noexcept nogil
    cdef void stage_encoded(
        self, const RecordFields *fields, void *queue, int64_t size, int64_t tags_code
    ) noexcept nogil
    cdef void stage_record(
        self, RecordFields *fields, void *queue, int64_t tags_code
    ) noexcept nogil
    cdef bint reserve_pending(self, int64_t count) noexcept nogil
    cdef bint commit(self) noexcept nogil
    cdef bint write_pending(self) noexcept nogil
    cdef int write(self) except -1
