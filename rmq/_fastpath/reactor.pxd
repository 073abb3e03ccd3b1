from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.held_replies cimport Held, HeldReplies
from rmq._fastpath.native_table cimport LearnedHeaders, NativeTable
from rmq._fastpath.rpc_times cimport RpcTimes
from rmq._fastpath.watermark cimport Watermark

cdef extern from "<sys/epoll.h>":
    ctypedef union epoll_data_t:
        uint64_t u64
    struct epoll_event:
        uint32_t events
        epoll_data_t data

cdef struct Slot:
    int fd
    uint32_t generation
    int32_t listener
    uint32_t armed              # the epoll events asked for
    uint8_t *inbox              # NULL while nothing is waiting to be framed
    int64_t in_capacity
    int64_t receive_size        # what the next receive has room for
    int64_t in_start            # first byte not yet cut into a frame
    int64_t in_end
    uint8_t *outbox             # NULL while nothing is waiting to be sent
    int64_t out_capacity
    int64_t out_start
    int64_t out_end
    int64_t active_ms
    int64_t frame_ms            # when the frame that is not whole yet began
    int32_t state
    bint is_dirty               # in the list of connections to send for
    bint is_undrained           # frames were left behind in the inbox
    bint is_paused              # frames wait until the outbox is empty
    int32_t handed              # frames that were handed over and not taken yet
    int64_t declined_poll       # the poll in which a frame of it was declined
    int64_t served_poll         # the poll in which a compiled handler served it
    int32_t peer_size
    uint8_t peer[20]            # address and port as a record stores them
    LearnedHeaders learned

cdef struct Event:
    int32_t kind
    uint64_t token
    int64_t start               # of a frame, in the inbox
    int64_t size

cdef class Reactor:
    cdef readonly int epfd
    cdef Slot **slots
    cdef uint32_t slot_count
    cdef uint32_t slot_capacity
    cdef list free_slots
    cdef Event *events
    cdef int event_count
    cdef int event_capacity
    cdef uint32_t *dirty
    cdef int64_t dirty_count
    cdef uint32_t *undrained
    cdef int64_t undrained_count
    cdef readonly HeldReplies held
    cdef Watermark watermark
    cdef int watermark_fd
    cdef int wake_fd            # in the set: something was left for the owner
    cdef int64_t now_ms
    cdef int64_t max_frame_size
    cdef int64_t max_buffer_bytes
    cdef readonly int64_t buffer_bytes      # capacity of all inboxes and outboxes
    cdef uint32_t turn
    cdef bint in_batch
    cdef bint is_urgent         # what was served concerns Python at once
    cdef bint is_hurried        # the next poll must not wait
    cdef bint is_awaited        # a reply of this drain waits for the disk
    cdef int64_t busy_poll_ns
    cdef int64_t active_ns      # when the last of what was ready was served
    cdef int32_t handed_limit   # frames of one connection handed over in one poll
    cdef int taken_count        # events taken and not yet flushed
    cdef int64_t taken_ns       # since when
    cdef int64_t frame_ns       # what Python took for one of late, on average
    cdef int spin_misses        # spins in a row that nothing came of
    cdef readonly int64_t connections
    cdef readonly int64_t frames
    cdef readonly int64_t bytes_in
    cdef readonly int64_t bytes_out
    cdef readonly int64_t polls
    cdef readonly int64_t spins         # what came while poll was waiting busily
    cdef readonly int64_t declined      # frames handed to Python
    cdef readonly NativeTable natives
    cdef uint8_t *held_reply
    cdef readonly RpcTimes rpc_times
    cdef readonly int64_t begun_ns      # when what is served now was found ready
    cdef readonly int64_t held_timeout_ms

    cdef bint serve(self, uint32_t index, const uint8_t *p, int64_t size) noexcept nogil
    cdef bint reserve(self, uint32_t index, int64_t size) noexcept nogil
    cdef bint may_grow(
        self, uint32_t index, int64_t before, int64_t wanted
    ) noexcept nogil
    cdef void free_outbox(self, Slot *slot) noexcept nogil
    cdef int64_t receive_room(self, const Slot *slot) noexcept nogil
    cdef bint make_room(self, uint32_t index, int64_t frame_size) noexcept nogil
    cdef void compact(self, Slot *slot) noexcept nogil
    cdef void mark_dirty(self, uint32_t index) noexcept nogil
    cdef void drop_replies(self) noexcept nogil
    cdef bint serve_ready(self, const epoll_event *ready, int count) noexcept nogil
    cdef void note_pace(self) noexcept nogil
    cdef bint may_wait(self) noexcept nogil
    cdef int64_t spin_end(self) noexcept nogil
    cdef int wait(self, epoll_event *ready) noexcept
    cdef int spin(self, epoll_event *ready) noexcept nogil
    cdef void demand_flush(self) noexcept nogil
    cdef int wait_for_disk(self, epoll_event *ready) noexcept nogil
    cdef Slot *find(self, uint64_t token) noexcept nogil
    cdef void receive(self, uint32_t index) noexcept nogil
    cdef void cut(self, uint32_t index) noexcept nogil
    cdef void leave_behind(self, uint32_t index) noexcept nogil
    cdef void cut_left_behind(self) noexcept nogil
    cdef void add_event(
        self, int32_t kind, uint32_t index, int64_t start, int64_t size
    ) noexcept nogil
    cdef void fail(self, uint32_t index, int32_t kind) noexcept nogil
    cdef bint push(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil
    cdef void send_pending(self, uint32_t index) noexcept nogil
    cdef void send_dirty(self) noexcept nogil
    cdef void send_outside_batch(self) noexcept nogil
    cdef void arm(self, uint32_t index) noexcept nogil
    cdef void release_held(self) noexcept nogil
    cdef void answer_held(self, Held *held, bint timed_out) noexcept nogil
    cdef uint64_t _token(self, uint32_t index) noexcept nogil
    cdef uint32_t _new_slot(self) except? 1000000000
