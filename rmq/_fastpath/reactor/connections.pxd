from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from rmq._fastpath.reactor.buffers cimport Buffer, MemoryBudget
from rmq._fastpath.reactor.template cimport LearnedHeaders
from rmq._fastpath.reactor.tls_layer cimport TlsLayer

cdef enum:
    LISTENER_LIMIT = 8
    SLOT_LIMIT = 1 << 20
    WATERMARK_ID = SLOT_LIMIT   # epoll data that are no connection's token
    WAKE_ID = SLOT_LIMIT + 1
    TRIO_ID = SLOT_LIMIT + 2
    # maximum frames handed over at once; ends of connections are added
    EVENT_LIMIT = 4096
    RECEIVE_BYTES = 256 * 1024  # maximum bytes received from one connection in one poll
    SEND_BYTES = 512 * 1024  # maximum bytes sent to one connection in one poll: 0.3 ms
    BUFFER_START = 16 * 1024
    OUTBOX_PAUSE = 256 * 1024   # bytes to send above which a connection is not read

cdef enum State:
    OPEN = 0
    ENDING = 1                  # no longer read; the owner was notified

cpdef enum EventKind:
    FRAME = 0
    PEER_CLOSED = 1
    CONNECTION_BROKEN = 2
    FRAME_TOO_LARGE = 3
    FRAME_TOO_SMALL = 4
    HEADER_TOO_LARGE = 5
    READER_TOO_SLOW = 6
    OUT_OF_MEMORY = 7
    NOT_STORED = 8
    RULE_BROKEN = 9             # the peer broke a rule of another protocol than frames
    PEER_FLOODS = 10
    CONNECTION_CUT = 11  # the peer closed the connection without TLS's close notify
    TLS_FAILED = 12             # `TlsLayer.error` has the reason
    TLS_WITHOUT_DATA = 13

cdef struct Slot:
    int fd                      # -1: free
    uint32_t generation
    int32_t listener
    uint32_t armed              # the requested epoll events
    Buffer inbox
    Buffer outbox
    void *tls                   # a TlsLayer, owned by the connection; NULL: plain
    Buffer sealed               # encrypted bytes that the socket did not take
    # event that waits until the last frames are decoded; FRAME: none
    EventKind end_event
    int64_t receive_size        # room for the next receive
    int64_t active_ms
    int64_t frame_ms            # time at which the incomplete frame began
    State state
    bint is_dirty               # in `dirty`: it has bytes to send
    bint is_uncut               # in `uncut`: its inbox has frames to decode
    bint is_declined            # its first frame was declined and waits
    bint has_sent_frame         # a whole frame has come
    bint is_paused              # frames wait until the outbox is empty
    bint is_waiting             # frames wait until their handler can serve them
    int32_t handed  # number of frames handed over that Python has not taken yet
    int64_t declined_poll       # poll in which a frame of the connection was declined
    int64_t served_poll         # poll in which a compiled handler served the connection
    int32_t peer_size
    uint8_t peer[20]            # address and port as a record stores them
    LearnedHeaders learned
    void *wire  # state of a WireProtocol; NULL: the connection has frames

cdef struct Event:
    int32_t kind
    uint64_t token
    int64_t start               # position of the frame in the inbox
    int64_t size

cdef class WireProtocol:
    cdef int64_t event_count    # events for Python, which is notified at once
    cdef void cut_frames(self, uint32_t index) noexcept nogil
    cdef void free_state(self, Slot *slot, MemoryBudget *budget) noexcept nogil
    cdef int64_t memory_size(self, const Slot *slot) noexcept nogil
    cdef void send_held(
        self, uint64_t token, uint32_t stream, const uint8_t *data, int64_t size,
        int32_t code,
    ) noexcept nogil

cdef class Connections:
    cdef WireProtocol other     # None: all connections have frames
    cdef uint32_t other_listeners   # bits of the listeners with the other protocol
    cdef int epfd               # epoll descriptor of the reactor
    cdef Slot **slots
    cdef uint32_t slot_count
    cdef uint32_t slot_capacity
    cdef list free_slots
    cdef MemoryBudget budget
    cdef Event *events
    cdef int event_count
    cdef int event_capacity
    cdef uint32_t *dirty        # slots with bytes to send
    cdef int64_t dirty_count
    cdef uint32_t *uncut        # slots whose inbox has frames to decode
    cdef uint32_t *uncut_before  # list of the previous poll, while it is processed
    cdef int64_t uncut_count
    # number of its first slots whose frames Python got in this poll
    cdef int64_t uncut_served
    cdef readonly int64_t waiting_count  # connections whose frames wait for a handler
    cdef int64_t bytes_out
    cdef int64_t count
    cdef int64_t tls_count      # open connections with TLS
    cdef int64_t tls_refused    # connections that ended because of their TLS records
    # buffer of RECORDS_BYTES for encrypted bytes; NULL before the first use
    cdef uint8_t *records
    # fields of the current poll
    cdef int64_t polls          # number of the poll
    cdef int64_t now_ms
    cdef readonly int64_t begun_ns  # time at which the events of the poll were found

    cdef list take_events(self)
    cdef int grow(self) except -1
    cdef uint64_t token_of(self, uint32_t index) noexcept nogil
    cdef Slot *find(self, uint64_t token) noexcept nogil
    cdef void arm(self, uint32_t index) noexcept nogil
    cdef void fail(self, uint32_t index, EventKind kind) noexcept nogil
    cdef bint has_work(self) noexcept nogil
    cdef void add_event(
        self, EventKind kind, uint32_t index, int64_t start, int64_t size
    ) noexcept nogil
    cdef void drop_replies(self) noexcept nogil
    cdef void cut_later(self, uint32_t index) noexcept nogil
    cdef void suspend_reading(self, uint32_t index) noexcept nogil
    cdef void resume_reading(self) noexcept nogil
    cdef bint is_stalled(self, const Slot *slot) noexcept nogil
    cdef void end_stalled(self, uint32_t asking, int64_t wanted) noexcept nogil
    cdef void end_for_memory(self, uint32_t index) noexcept nogil
    cdef int64_t memory_size(self, const Slot *slot) noexcept nogil
    cdef bint may_grow(
        self, uint32_t index, const Buffer *buffer, int64_t wanted
    ) noexcept nogil
    cdef int64_t receive_room(self, const Slot *slot) noexcept nogil
    cdef bint make_room(self, uint32_t index, int64_t frame_size) noexcept nogil
    cdef void compact(self, Slot *slot) noexcept nogil
    cdef bint reserve(self, uint32_t index, int64_t size) noexcept nogil
    cdef bint push(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil
    cdef void mark_dirty(self, uint32_t index) noexcept nogil
    cdef void send_dirty(self) noexcept nogil
    cdef void send_pending(self, uint32_t index, int64_t limit) noexcept nogil
    cdef void send_plain(self, uint32_t index, int64_t limit) noexcept nogil
    cdef void send_encrypted(self, uint32_t index, int64_t limit) noexcept nogil
    cdef ssize_t send_bytes(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil
    cdef bint send_sealed(self, uint32_t index) noexcept nogil
    cdef void send_records(self, uint32_t index, int64_t size) noexcept nogil
    cdef bint reserve_inbox(self, uint32_t index, int64_t size) noexcept nogil
    cdef bint decrypt_records(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil
    cdef void release_tls(self, Slot *slot)
