from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from rmq._fastpath.bytes.name_table cimport NameTable
from rmq._fastpath.bytes.selector cimport Selector
from rmq._fastpath.handlers.commit_table cimport CommitTable
from rmq._fastpath.handlers.held_pulls cimport HeldGroup, HeldPulls
from rmq._fastpath.handlers.reply_fields cimport ReplyFields
from rmq._fastpath.log.log_reader cimport LogReader
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.queue_tail cimport QueueTail
from rmq._fastpath.log.tail cimport LogTail
from rmq._fastpath.log.watermark cimport Watermark

cdef enum:
    QUEUE_LIMIT = 65536         # queues of a topic: as many as an admin may give it
    CHUNK_SIZE = 256 * 1024     # bytes of a file whose pages are checked together
    CHUNK_LIMIT = 1024  # maximum number of chunks that are known to be in memory
    CHUNK_MS = 100              # time for which this knowledge is used

cdef struct Served:
    int64_t pulls
    int64_t messages
    int64_t size
    int64_t next_offset         # after the last message that was served
    uint64_t token              # token of the connection that got it

cdef struct Chunk:
    const uint8_t *address
    int64_t size                # bytes of the chunk that were in memory
    int64_t seen_ms

cdef struct ViewQueue:
    void *tail                  # NULL: not known
    void *map                   # the queue file that was read last
    HeldGroup *group            # its held pulls; NULL: there was no pull yet
    Served served               # since the last `take_served`

cdef class PullView:
    cdef readonly str group
    cdef readonly str topic
    cdef readonly str expression
    cdef bytes key
    # version of the subscription; newer pulls are not for this view
    cdef readonly int64_t sub_version
    cdef int64_t code_count     # -1: every tag
    cdef int64_t *codes
    cdef readonly Selector selector     # None: the filter has tags
    cdef ReplyFields flags      # ext fields of every reply
    cdef list tails             # keeps the queues of `queues` alive
    cdef list maps
    cdef ViewQueue *queues      # queues by queue id
    cdef int32_t queue_count    # number of queue ids with a place in `queues`
    cdef readonly bint has_served
    cdef int grow(self, int32_t wanted) except -1

cdef class PullTable:
    cdef LogTail log
    cdef LogReader reader
    cdef Watermark durable      # end of the log for readers; None: the end of the log
    cdef CommitTable commits    # offsets that came with pulls
    cdef readonly int64_t hot_window
    cdef readonly int64_t read_window   # handlers decline pulls of older records
    cdef readonly tuple hot_limits
    cdef readonly tuple cold_limits
    cdef int64_t hot_messages, hot_bytes
    cdef int64_t cold_messages, cold_bytes
    cdef int64_t scan_bytes
    cdef int32_t version
    cdef dict views
    cdef NameTable names        # names of the views, which their owner limits
    cdef Chunk *chunks
    cdef readonly HeldPulls held
    # pulls that found messages since the start, and these messages
    cdef readonly int64_t found
    cdef readonly int64_t messages
    cdef readonly int64_t missed    # pulls that found no message and wait

    cdef int64_t min_offset(self) noexcept with gil
    cdef int64_t end_offset(self) noexcept nogil
    cdef bint is_in_memory(
        self, void *file, int64_t position, int64_t size, int64_t now_ms
    ) noexcept nogil
    cdef HeldGroup *group_of(self, void *view, int64_t queue_id) noexcept nogil
