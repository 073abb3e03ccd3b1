"""Reactor: every plain connection of the process over one epoll set.

`poll` works in three phases: receive and cut frames of each ready connection, finish
the batch, send once per connection.  It touches no Python object and never blocks; it
is entered with the GIL held, which is the lock of the store.  Frames are handed over by
`take_events`; replies come back through `send` and leave with `flush`.

Tokens are `generation << 32 | slot`: a token of a closed connection finds nothing, also
when its slot or its descriptor serves another one.  Events carry tokens, so what was
noted about a closed connection never reaches its successor.
Whatever is sent outside a batch may end a connection or let its frames be cut again: an
eventfd of the set then wakes the owner.
Limits: a poll receives at most POLL_BYTES or for POLL_NS; a connection RECEIVE_BYTES of
it, FRAMES_PER_CONNECTION and HANDED_PER_CONNECTION, or as many as Python lately did in
HANDED_NS; a frame has max_frame_size; an outbox stops its connection from being read at
OUTBOX_PAUSE and ends it at OUTBOX_LIMIT.  All buffers together have max_buffer_bytes:
beyond that the connection with the largest is ended, and only small buffers are given
out.  A frame's buffer grows as its bytes come, whatever it announces.
A connection whose frames wait to be handed over is not read either, and an idle one
holds no buffer.
The trio task that owns the reactor calls everything here.
"""

# tidy: long — one class whose three phases are read together

import os

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memmove
from cpython.bytes cimport PyBytes_FromStringAndSize
from posix.unistd cimport close

from typing import NamedTuple

from rmq._fastpath.endian cimport get32
from rmq._fastpath.held_replies cimport Held, HeldReplies
from rmq._fastpath.native cimport (
    Conn, DECLINED, Frame, HELD, NativeHandler, REASON_LIMIT, REPLY_ROOM, Verdict,
)
from rmq._fastpath.native_table cimport (
    LISTENER_LIMIT, Native, NativeTable, forget_headers
)
from rmq._fastpath.watermark cimport Watermark

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <stdint.h>
    #include <sys/epoll.h>
    #include <sys/eventfd.h>
    #include <sys/socket.h>
    #include <time.h>
    #include <unistd.h>
    static inline int64_t rmq_monotonic_ns(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return t.tv_sec * 1000000000LL + t.tv_nsec;
    }
    static inline int rmq_epoll_set(
        int set, int how, int fd, uint32_t what, uint64_t id
    ) {
        struct epoll_event event = {.events = what, .data.u64 = id};
        return epoll_ctl(set, how, fd, &event);
    }
    static inline void rmq_eventfd_drain(int fd) {
        uint64_t count;
        ssize_t done = read(fd, &count, sizeof count);
        (void)done; /* empty: somebody was faster */
    }
    static inline void rmq_eventfd_wake(int fd) {
        uint64_t one = 1;
        ssize_t done = write(fd, &one, sizeof one);
        (void)done; /* full: it is awake already */
    }
    """
    int64_t rmq_monotonic_ns() noexcept nogil
    int rmq_epoll_set(
        int set, int how, int fd, uint32_t what, uint64_t id
    ) noexcept nogil
    void rmq_eventfd_drain(int fd) noexcept nogil
    void rmq_eventfd_wake(int fd) noexcept nogil
    int eventfd(unsigned int start, int flags) noexcept nogil
    int EFD_CLOEXEC, EFD_NONBLOCK
    int epoll_wait(int set, epoll_event *events, int size, int timeout) nogil
    ssize_t recv(int fd, void *data, size_t size, int flags) nogil
    ssize_t c_send "send"(int fd, const void *data, size_t size, int flags) nogil
    int MSG_DONTWAIT, MSG_NOSIGNAL
    int EPOLLIN, EPOLLOUT, EPOLLHUP, EPOLLERR, EPOLLRDHUP
    int EPOLL_CTL_ADD, EPOLL_CTL_MOD, EPOLL_CTL_DEL, EPOLL_CLOEXEC
    int epoll_create1(int flags) nogil

cdef enum:
    READY_LIMIT = 256                   # connections looked at in one poll
    EVENT_LIMIT = 4096                  # frames handed over at once; ends come on top
    FRAMES_PER_CONNECTION = 512
    HANDED_PER_CONNECTION = 16          # of these to Python, fewer if they take long
    HANDED_NS = 500_000                 # what those of one connection may take
    POLL_BYTES = 1 << 20
    POLL_NS = 500_000
    SPIN_NS = 1_000_000                 # of rounds in one poll before others run
    SPIN_MISSES = 8                     # spins in vain; then few are tried
    SPIN_TRY = 16                       # one in so many polls
    DISK_WAIT_MS = 1                    # for held replies before others run
    RECEIVE_BYTES = 256 * 1024
    BUFFER_START = 16 * 1024
    OUTBOX_PAUSE = 256 * 1024
    OUTBOX_LIMIT = 160 * 1024 * 1024    # the largest pull answer and some more
    HELD_TIMEOUT_MS = 5_000             # syncFlushTimeout, unless said otherwise
    SLOT_LIMIT = 1 << 20
    ONEWAY_FLAG = 2
    FLUSH_DISK_TIMEOUT = 10             # what a held reply says whose time is over
    SUCCESS = 0                         # what compiled handlers answer

cdef enum:
    OPEN = 0
    ENDING = 1      # no longer read; the owner has been told

cpdef enum EventKind:
    FRAME = 0
    PEER_CLOSED = 1
    CONNECTION_BROKEN = 2
    FRAME_TOO_LARGE = 3
    FRAME_TOO_SMALL = 4
    HEADER_TOO_LARGE = 5
    READER_TOO_SLOW = 6
    OUT_OF_MEMORY = 7
    NOT_KEPT = 8

cdef uint64_t WATERMARK_ID = <uint64_t>-1
cdef uint64_t WAKE_ID = <uint64_t>-2


class ReactorStatistics(NamedTuple):
    """Sums since the start, and what is open now."""

    connections: int
    held: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    declined: int
    buffer_bytes: int


@cython.final
cdef class Reactor:
    """The epoll set with its connections; `epfd` is what the owner waits for."""

    def __cinit__(
        self,
        *,
        int64_t max_frame_size=16 * 1024 * 1024,
        int64_t max_buffer_bytes=512 * 1024 * 1024,
        int64_t busy_poll_us=0,
    ):
        """`busy_poll_us`: for how long a poll waits busily after it had work."""
        self.max_frame_size = max_frame_size
        self.max_buffer_bytes = max_buffer_bytes
        self.busy_poll_ns = busy_poll_us * 1000
        self.handed_limit = HANDED_PER_CONNECTION
        self.free_slots = []
        self.watermark_fd = self.wake_fd = -1
        self.natives = NativeTable()
        self.held = HeldReplies()
        self.held_timeout_ms = HELD_TIMEOUT_MS
        self.rpc_times = RpcTimes()
        self.held_reply = <uint8_t *>malloc(REPLY_ROOM)
        if self.held_reply == NULL:
            raise MemoryError
        self.events = <Event *>malloc(EVENT_LIMIT * sizeof(Event))
        if self.events == NULL:
            raise MemoryError
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, os.strerror(errno))
        self.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.wake_fd < 0 or rmq_epoll_set(
            self.epfd, EPOLL_CTL_ADD, self.wake_fd, EPOLLIN, WAKE_ID
        ):
            raise OSError(errno, os.strerror(errno))

    def __dealloc__(self):
        cdef uint32_t i
        for i in range(self.slot_count):
            if self.slots[i].fd >= 0:
                close(self.slots[i].fd)
            free(self.slots[i].inbox)
            free(self.slots[i].outbox)
            forget_headers(&self.slots[i].learned)
            free(self.slots[i])
        free(self.held_reply)
        free(self.slots)
        free(self.dirty)
        free(self.undrained)
        free(self.events)
        if self.wake_fd >= 0:
            close(self.wake_fd)
        if self.epfd > 0:
            close(self.epfd)

    # -- connections

    def add(self, int fd, int listener=0, bytes peer=b""):
        """Own a connected, non-blocking descriptor; the token of its connection.

        `peer` is the other end as a record stores it, for compiled handlers.
        """
        cdef uint32_t index
        cdef Slot *slot
        if not 0 <= listener < LISTENER_LIMIT:
            raise ValueError(f"listener {listener}, at most {LISTENER_LIMIT - 1}")
        if self.free_slots:
            index = self.free_slots.pop()
        else:
            index = self._new_slot()
        slot = self.slots[index]
        slot.fd = fd
        slot.listener = listener
        slot.state = OPEN
        slot.is_paused = False
        slot.declined_poll = -1
        slot.peer_size = min(len(peer), <int32_t>sizeof(slot.peer))
        memcpy(slot.peer, <const char *>peer, slot.peer_size)
        slot.active_ms = slot.frame_ms = self.now_ms
        slot.armed = EPOLLIN | EPOLLRDHUP
        if rmq_epoll_set(self.epfd, EPOLL_CTL_ADD, fd, slot.armed, self._token(index)):
            slot.fd = -1
            self.free_slots.append(index)
            raise OSError(errno, os.strerror(errno))
        self.connections += 1
        return self._token(index)

    cdef uint64_t _token(self, uint32_t index) noexcept nogil:
        return (<uint64_t>self.slots[index].generation << 32) | index

    cdef uint32_t _new_slot(self) except? 1000000000:
        cdef uint32_t capacity = self.slot_capacity
        if self.slot_count == capacity:
            if capacity == SLOT_LIMIT:
                raise RuntimeError(f"more than {SLOT_LIMIT} connections")
            capacity = max(<uint32_t>64, capacity * 2)
            self.slots = <Slot **>_grown(self.slots, capacity * sizeof(Slot *))
            self.dirty = <uint32_t *>_grown(self.dirty, capacity * sizeof(uint32_t))
            self.undrained = <uint32_t *>_grown(
                self.undrained, capacity * sizeof(uint32_t)
            )
            self.events = <Event *>_grown(
                self.events, (EVENT_LIMIT + capacity) * sizeof(Event)
            )
            self.slot_capacity = capacity
            self.event_capacity = EVENT_LIMIT + capacity
        self.slots[self.slot_count] = <Slot *>calloc(1, sizeof(Slot))
        if self.slots[self.slot_count] == NULL:
            raise MemoryError
        self.slots[self.slot_count].fd = -1
        self.slot_count += 1
        return self.slot_count - 1

    cdef Slot *find(self, uint64_t token) noexcept nogil:
        cdef uint32_t index = <uint32_t>token
        if index >= self.slot_count:
            return NULL
        if self.slots[index].generation != token >> 32 or self.slots[index].fd < 0:
            return NULL
        return self.slots[index]

    def close(self, uint64_t token):
        """End a connection: send what can be sent at once, free all it holds."""
        cdef Slot *slot = self.find(token)
        cdef uint32_t index = <uint32_t>token
        if slot == NULL:
            return False
        if slot.out_end > slot.out_start:
            self.send_pending(index)
        rmq_epoll_set(self.epfd, EPOLL_CTL_DEL, slot.fd, 0, 0)
        os.close(slot.fd)
        slot.fd = -1
        slot.generation += 1
        free(slot.inbox)
        forget_headers(&slot.learned)
        self.buffer_bytes -= slot.in_capacity
        slot.inbox = NULL
        slot.in_capacity = slot.in_start = slot.in_end = slot.handed = 0
        slot.receive_size = 0
        self.free_outbox(slot)
        self.free_slots.append(index)
        self.connections -= 1
        return True

    def is_open(self, uint64_t token):
        """True until the connection is closed."""
        return self.find(token) != NULL

    def descriptor(self, uint64_t token):
        """The file descriptor, or -1 if the connection is gone."""
        cdef Slot *slot = self.find(token)
        return -1 if slot == NULL else slot.fd

    def pending_size(self, uint64_t token):
        """Bytes that wait in the outbox."""
        cdef Slot *slot = self.find(token)
        return 0 if slot == NULL else slot.out_end - slot.out_start

    def idle_since(self, int64_t before_ms, int listener):
        """Tokens of a listener's connections without traffic since `before_ms`.

        So is one whose frame began to arrive by then and is not whole yet.
        """
        cdef uint32_t i
        cdef Slot *slot
        cdef bint is_slow
        tokens = []
        for i in range(self.slot_count):
            slot = self.slots[i]
            if slot.fd < 0 or slot.listener != listener:
                continue
            is_slow = slot.in_end > slot.in_start and slot.frame_ms <= before_ms
            if slot.active_ms <= before_ms or (is_slow and not slot.is_paused):
                tokens.append(self._token(i))
        return tokens

    # -- compiled handlers

    cdef bint serve(
        self, uint32_t index, const uint8_t *p, int64_t size
    ) noexcept nogil:
        """Offer a frame to its compiled handler; False leaves it to Python.

        After one frame was declined the connection's later frames of this poll are too,
        so that its requests keep their order.
        """
        cdef Slot *slot = self.slots[index]
        cdef Frame frame
        cdef Conn conn
        cdef Native *native
        cdef Verdict verdict = DECLINED
        cdef uint32_t word
        if not self.natives.serves(slot.listener) or slot.declined_poll == self.polls:
            return False
        word = get32(p + 4)
        native = self.natives.read_header(
            slot.listener, &slot.learned, p + 8, word & 0xFFFFFF, word >> 24, &frame
        )
        if native != NULL:
            if (
                self.held.has_room(REPLY_ROOM)
                and self.reserve(index, REPLY_ROOM)
            ):
                frame.body = p + 8 + (word & 0xFFFFFF)
                frame.body_size = <uint32_t>(size - 8 - (word & 0xFFFFFF))
                frame.now_ms = self.now_ms
                conn.ready.end = slot.outbox + slot.out_end
                conn.ready.limit = slot.outbox + slot.out_capacity
                conn.held.end = self.held_reply
                conn.held.limit = self.held_reply + REPLY_ROOM
                conn.peer = slot.peer
                conn.peer_size = slot.peer_size
                conn.watermark = 0
                conn.reason = 0
                conn.grow = _grow
                conn.owner = <void *>self
                conn.slot = index
                verdict = (<NativeHandler>native.handler).serve(&frame, &conn)
            else:
                conn.reason = 0
            if verdict == DECLINED:
                native.declined[conn.reason % REASON_LIMIT] += 1
            else:
                native.served += 1
                native.is_touched = True
        if slot.out_capacity:
            self.mark_dirty(index)      # also to give back an outbox without use
        if verdict == DECLINED:
            slot.declined_poll = self.polls
            return False
        slot.served_poll = self.polls
        if verdict == HELD:
            self.held.keep(
                self._token(index), self.held_reply, conn.held.end - self.held_reply,
                NULL, 0, conn.watermark, self.now_ms + self.held_timeout_ms,
                native.code, self.begun_ns,
            )
            self.is_awaited = True
        else:
            slot.out_end = conn.ready.end - slot.outbox
            native.answered += not frame.flag & ONEWAY_FLAG
        return True

    cdef void drop_replies(self) noexcept nogil:
        """End the connections that were served in this poll, without their replies."""
        cdef uint32_t i
        cdef Slot *slot
        for i in range(self.slot_count):
            slot = self.slots[i]
            if slot.served_poll == self.polls and slot.fd >= 0:
                slot.out_start = slot.out_end = 0
                self.fail(i, NOT_KEPT)

    # -- receive

    def poll(self, int64_t now_ms):
        """Serve what is ready; True if anything was.

        Without work it returns at once, or when nothing has come for `busy_poll_us`, or
        from the disk for DISK_WAIT_MS where replies wait for it.
        While work comes that Python need not hear of, it goes on for SPIN_NS.
        `now_ms` is any clock that grows; deadlines and idle times are measured by it.
        """
        cdef epoll_event ready[READY_LIMIT]
        cdef int count
        cdef int64_t started
        cdef bint is_busy
        self.now_ms = now_ms
        self.is_urgent = self.is_hurried
        self.is_hurried = False
        count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
        if count <= 0 and self.may_wait() and (
            self.held.head != NULL or rmq_monotonic_ns() < self.spin_end()
        ):
            count = self.wait(ready)
        is_busy = self.serve_ready(ready, count)
        started = self.active_ns
        while count > 0 and self.may_wait() and self.active_ns - started < SPIN_NS:
            count = self.wait(ready)
            if count > 0:
                self.serve_ready(ready, count)
        self.demand_flush()
        return is_busy

    def hurry(self):
        """Let the next poll wait for nothing: other tasks have work to go on with."""
        self.is_hurried = True

    cdef bint may_wait(self) noexcept nogil:
        """True if waiting here pays: for the disk, or as there was work just now."""
        return (
            self.busy_poll_ns > 0
            and self.event_count == 0
            and self.undrained_count == 0
            and not self.is_urgent
            and (
                self.held.head != NULL
                or self.spin_misses < SPIN_MISSES
                or self.polls % SPIN_TRY == 0
            )
        )

    cdef int64_t spin_end(self) noexcept nogil:
        return self.active_ns + self.busy_poll_ns

    cdef int wait(self, epoll_event *ready) noexcept:
        """Ask once, then until something is ready or the time is over; no GIL."""
        with nogil:
            if self.held.head == NULL:
                return self.spin(ready)
            return self.wait_for_disk(ready)

    cdef int spin(self, epoll_event *ready) noexcept nogil:
        """Wait busily for what a peer sends after its answer."""
        cdef int count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
        while count == 0 and rmq_monotonic_ns() < self.spin_end():
            count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
        if count > 0:
            self.spins += 1
            self.spin_misses = 0
        else:
            self.spin_misses += 1
        return count

    cdef int wait_for_disk(self, epoll_event *ready) noexcept nogil:
        """Sleep until the watermark moves or a peer sends; answer what is durable.

        Answers leave from here, as the thread that flushed has the GIL now.
        """
        cdef int count
        self.demand_flush()     # not before: the thread that flushes needs the GIL
        count = epoll_wait(self.epfd, ready, READY_LIMIT, DISK_WAIT_MS)
        self.release_held()
        self.send_dirty()
        return count

    cdef void demand_flush(self) noexcept nogil:
        """Have the disk get what replies began to wait for."""
        if self.is_awaited and self.watermark_fd >= 0:
            self.watermark.want()
        self.is_awaited = False

    cdef bint serve_ready(self, const epoll_event *ready, int count) noexcept nogil:
        """Receive from what is ready, finish the batch, send; False without work."""
        cdef const epoll_event *event
        cdef int i
        cdef int64_t started, received, ended
        cdef uint32_t index
        cdef Slot *slot
        self.polls += 1
        started = self.begun_ns = rmq_monotonic_ns()
        received = self.bytes_in
        self.cut_left_behind()
        for i in range(count):
            event = &ready[(i + self.turn) % count]
            if event.data.u64 == WATERMARK_ID:
                rmq_eventfd_drain(self.watermark_fd)
                continue
            if event.data.u64 == WAKE_ID:
                rmq_eventfd_drain(self.wake_fd)
                continue
            slot = self.find(event.data.u64)
            if slot == NULL or slot.state != OPEN:
                continue
            index = <uint32_t>event.data.u64
            if event.events & EPOLLOUT:
                self.send_pending(index)
            if event.events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP):
                if self.bytes_in - received >= POLL_BYTES:
                    continue
                if rmq_monotonic_ns() - started >= POLL_NS:
                    continue
                if self.event_count >= EVENT_LIMIT:
                    continue
                if slot.is_undrained or slot.is_paused:
                    continue    # no more before what it sent is handed over
                if slot.state == OPEN and slot.armed & EPOLLIN:
                    self.receive(index)
        self.turn += 1
        if not self.natives.end_of_drain(&self.is_urgent):
            self.drop_replies()
        self.release_held()
        self.send_dirty()
        ended = rmq_monotonic_ns()
        if count > 0:
            self.active_ns = ended
        self.natives.note_times(self.rpc_times, ended - started)
        return count > 0 or self.event_count > 0 or self.undrained_count > 0

    cdef void receive(self, uint32_t index) noexcept nogil:
        """Take what the socket has, up to the limits, and cut it into frames."""
        cdef Slot *slot = self.slots[index]
        cdef int64_t total = 0, room
        cdef ssize_t got
        if slot.handed == 0:
            self.compact(slot)
        if slot.in_end == slot.in_start:
            slot.frame_ms = self.now_ms
        while total < RECEIVE_BYTES:
            if slot.in_end == slot.in_capacity and not self.make_room(
                index, self.receive_room(slot)
            ):
                if slot.in_start == 0:
                    self.fail(index, OUT_OF_MEMORY)
                return
            room = min(slot.in_capacity - slot.in_end, <int64_t>RECEIVE_BYTES)
            got = recv(slot.fd, slot.inbox + slot.in_end, room, MSG_DONTWAIT)
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                if got < 0 and errno == EAGAIN:
                    break
                self.cut(index)
                self.fail(index, PEER_CLOSED if got == 0 else CONNECTION_BROKEN)
                return
            slot.in_end += got
            total += got
            self.bytes_in += got
            slot.active_ms = self.now_ms
            self.cut(index)
            if got < room or slot.state != OPEN:
                break
            if slot.is_undrained or slot.is_paused:
                break
        if total >= slot.receive_size:
            slot.receive_size = min(2 * total, <int64_t>RECEIVE_BYTES)
        elif total < slot.receive_size // 4:
            slot.receive_size = max(slot.receive_size // 2, <int64_t>BUFFER_START)
        if slot.handed == 0:
            self.compact(slot)

    cdef int64_t receive_room(self, const Slot *slot) noexcept nogil:
        """As much as this peer sent at once lately, while memory is not short."""
        if 2 * self.buffer_bytes > self.max_buffer_bytes:
            return BUFFER_START
        return max(slot.receive_size, <int64_t>BUFFER_START)

    cdef void cut(self, uint32_t index) noexcept nogil:
        """Hand over the whole frames of the inbox; grow it for one that is larger."""
        cdef Slot *slot = self.slots[index]
        cdef const uint8_t *p
        cdef int64_t have, size
        cdef int handed = 0
        while slot.state == OPEN:
            have = slot.in_end - slot.in_start
            if have < 4:
                return
            p = slot.inbox + slot.in_start
            size = <int64_t>get32(p) + 4
            if size - 4 > self.max_frame_size:
                self.fail(index, FRAME_TOO_LARGE)
                return
            if size < 8:
                self.fail(index, FRAME_TOO_SMALL)
                return
            if have >= 8 and <int64_t>(get32(p + 4) & 0xFFFFFF) > size - 8:
                self.fail(index, HEADER_TOO_LARGE)
                return
            if have < size:
                if size > slot.in_capacity - slot.in_start:
                    self.make_room(index, min(size, 4 * have))
                return
            if slot.out_end - slot.out_start > OUTBOX_PAUSE:
                slot.is_paused = True
                return
            if (
                self.event_count >= EVENT_LIMIT
                or handed >= FRAMES_PER_CONNECTION
                or slot.handed >= self.handed_limit
            ):
                self.leave_behind(index)
                return
            if not self.serve(index, p, size):
                self.add_event(FRAME, index, slot.in_start, size)
                slot.handed += 1
                self.declined += 1
            slot.in_start += size
            slot.frame_ms = self.now_ms
            self.frames += 1
            handed += 1

    cdef void leave_behind(self, uint32_t index) noexcept nogil:
        """Cut this inbox again in the next poll, whether or not its socket is ready."""
        cdef Slot *slot = self.slots[index]
        if not slot.is_undrained:
            slot.is_undrained = True
            self.undrained[self.undrained_count] = index
            self.undrained_count += 1

    cdef void cut_left_behind(self) noexcept nogil:
        """Frames that found no room in the last poll get no event of their own."""
        cdef int64_t i, count = self.undrained_count
        cdef Slot *slot
        self.undrained_count = 0
        for i in range(count):
            self.slots[self.undrained[i]].is_undrained = False
        # a list that fills up again is written from its start, never past what is read
        for i in range(count):
            slot = self.slots[self.undrained[i]]
            if slot.fd >= 0:
                self.cut(self.undrained[i])
                if slot.handed == 0:
                    self.compact(slot)

    cdef void add_event(
        self, int32_t kind, uint32_t index, int64_t start, int64_t size
    ) noexcept nogil:
        cdef Event *event = &self.events[self.event_count]
        event.kind = kind
        event.token = self._token(index)
        event.start = start
        event.size = size
        self.event_count += 1

    cdef void fail(self, uint32_t index, int32_t kind) noexcept nogil:
        """Stop listening to a connection and tell its owner, once."""
        cdef Slot *slot = self.slots[index]
        if slot.state != OPEN or self.event_count == self.event_capacity:
            return      # a list full of ended connections: it will fail again
        slot.state = ENDING
        self.arm(index)
        self.add_event(kind, index, 0, 0)

    @property
    def has_events(self):
        """True if `take_events` has something."""
        return self.event_count > 0

    def take_events(self):
        """[(kind, token, frame or None)] of the last poll; frames are copied out.

        Until `flush`, replies only collect, so that each connection gets one send.
        """
        cdef int i
        cdef Event *event
        cdef Slot *slot
        cdef bytes frame
        cdef list taken = []
        self.taken_count = self.event_count
        self.taken_ns = rmq_monotonic_ns()
        for i in range(self.event_count):
            event = &self.events[i]
            slot = self.find(event.token)
            if slot == NULL:
                continue
            frame = None
            if event.kind == FRAME:
                frame = PyBytes_FromStringAndSize(
                    <char *>slot.inbox + event.start, event.size
                )
            taken.append((event.kind, event.token, frame))
        for i in range(self.event_count):
            slot = self.find(self.events[i].token)
            if slot != NULL:
                slot.handed = 0
                self.compact(slot)
        self.event_count = 0
        self.in_batch = True
        return taken

    # -- send

    def send(
        self,
        uint64_t token,
        bytes data not None,
        int32_t code=-1,
        int32_t response=0,
        int64_t begun_ns=0,
    ):
        """Put `data` into the outbox; False if the connection is gone.

        It answers `code` with `response`: how long that took is counted, since
        `begun_ns`, or since what is served now was found ready.  -1 counts nothing.
        """
        cdef Slot *slot = self.find(token)
        cdef uint32_t index = <uint32_t>token
        if slot == NULL or not self.push(index, data, len(data)):
            return False
        if code >= 0:
            self.rpc_times.add(
                code, response,
                rmq_monotonic_ns() - (begun_ns or self.begun_ns), 1,
            )
        self.send_outside_batch()
        return True

    cdef void send_outside_batch(self) noexcept nogil:
        """Send now unless `flush` will; wake the owner for what comes of it."""
        if self.in_batch:
            return
        self.release_held()
        self.send_dirty()
        if self.event_count or self.undrained_count:
            rmq_eventfd_wake(self.wake_fd)

    def flush(self):
        """Send what collected since `take_events`; True if frames wait to be cut."""
        self.in_batch = False
        self.note_pace()
        self.release_held()
        self.send_dirty()
        return self.undrained_count > 0

    cdef void note_pace(self) noexcept nogil:
        """Hand over less at a time while what is taken keeps all others waiting."""
        cdef int64_t mean_ns
        if self.taken_count == 0:
            return
        mean_ns = (rmq_monotonic_ns() - self.taken_ns) // self.taken_count
        self.frame_ns += (mean_ns - self.frame_ns) // 4
        self.handed_limit = <int32_t>min(
            max(HANDED_NS // max(self.frame_ns, 1), 1), HANDED_PER_CONNECTION
        )
        self.taken_count = 0

    cdef bint push(
        self, uint32_t index, const uint8_t *data, int64_t size
    ) noexcept nogil:
        """Copy into the outbox and note the connection for the next send."""
        cdef Slot *slot = self.slots[index]
        if not self.reserve(index, size):
            return False
        memcpy(slot.outbox + slot.out_end, data, size)
        slot.out_end += size
        self.mark_dirty(index)
        return True

    cdef bint reserve(self, uint32_t index, int64_t size) noexcept nogil:
        """Have `size` free bytes at the end of the outbox."""
        cdef Slot *slot = self.slots[index]
        cdef int64_t wanted
        cdef void *grown
        if slot.out_end - slot.out_start + size > OUTBOX_LIMIT:
            self.fail(index, READER_TOO_SLOW)
            return False
        if slot.out_end + size <= slot.out_capacity:
            return True
        if slot.out_start:
            slot.out_end -= slot.out_start
            memmove(slot.outbox, slot.outbox + slot.out_start, slot.out_end)
            slot.out_start = 0
        if slot.out_end + size > slot.out_capacity:
            wanted = max(slot.out_end + size, 2 * slot.out_capacity)
            wanted = max(wanted, <int64_t>BUFFER_START)
            if not self.may_grow(index, slot.out_capacity, wanted):
                self.fail(index, READER_TOO_SLOW)
                return False
            grown = realloc(slot.outbox, wanted)
            if grown == NULL:
                self.fail(index, OUT_OF_MEMORY)
                return False
            self.buffer_bytes += wanted - slot.out_capacity
            slot.outbox = <uint8_t *>grown
            slot.out_capacity = wanted
        return True

    cdef bint may_grow(
        self, uint32_t index, int64_t before, int64_t wanted
    ) noexcept nogil:
        """Whether a buffer may grow; if there is no room, the largest holder leaves.

        False if the one that asks would be the largest itself.
        """
        cdef Slot *slot
        cdef Slot *largest = self.slots[index]
        cdef int64_t size
        cdef int64_t most = largest.in_capacity + largest.out_capacity + wanted - before
        cdef uint32_t i
        cdef uint32_t found = index
        if wanted <= BUFFER_START:
            return True
        if self.buffer_bytes + wanted - before <= self.max_buffer_bytes:
            return True
        for i in range(self.slot_count):
            slot = self.slots[i]
            size = slot.in_capacity + slot.out_capacity
            if slot.fd >= 0 and slot.state == OPEN and size > most:
                most, found = size, i
        if found == index or self.event_count == self.event_capacity:
            return False
        slot = self.slots[found]
        self.fail(
            found,
            READER_TOO_SLOW if slot.out_capacity > slot.in_capacity else OUT_OF_MEMORY,
        )
        self.free_outbox(slot)      # its inbox may hold frames on their way to Python
        return True

    cdef void free_outbox(self, Slot *slot) noexcept nogil:
        """Give an outbox back, and what is in it up."""
        self.buffer_bytes -= slot.out_capacity
        free(slot.outbox)
        slot.outbox = NULL
        slot.out_capacity = slot.out_start = slot.out_end = 0

    cdef void mark_dirty(self, uint32_t index) noexcept nogil:
        """Note a connection for the next send."""
        cdef Slot *slot = self.slots[index]
        if not slot.is_dirty:
            slot.is_dirty = True
            self.dirty[self.dirty_count] = index
            self.dirty_count += 1

    cdef void send_dirty(self) noexcept nogil:
        cdef int64_t i
        cdef Slot *slot
        for i in range(self.dirty_count):
            slot = self.slots[self.dirty[i]]
            slot.is_dirty = False
            if slot.fd >= 0:
                self.send_pending(self.dirty[i])
        self.dirty_count = 0

    cdef void send_pending(self, uint32_t index) noexcept nogil:
        """One send; what the socket does not take waits for EPOLLOUT."""
        cdef Slot *slot = self.slots[index]
        cdef ssize_t done
        while slot.out_start < slot.out_end:
            done = c_send(
                slot.fd,
                slot.outbox + slot.out_start,
                slot.out_end - slot.out_start,
                MSG_DONTWAIT | MSG_NOSIGNAL,
            )
            if done < 0:
                if errno == EINTR:
                    continue
                if errno != EAGAIN:
                    slot.out_start = slot.out_end
                    self.fail(index, CONNECTION_BROKEN)
                break
            slot.out_start += done
            self.bytes_out += done
            slot.active_ms = self.now_ms
        if slot.out_start == slot.out_end:
            self.free_outbox(slot)
            if slot.is_paused:
                slot.is_paused = False
                self.leave_behind(index)
        self.arm(index)

    cdef void arm(self, uint32_t index) noexcept nogil:
        """Ask epoll for what this connection can do now: send, or receive."""
        cdef Slot *slot = self.slots[index]
        cdef uint32_t wanted
        if slot.state != OPEN:
            wanted = 0
        elif slot.out_end > slot.out_start:
            wanted = EPOLLOUT
        else:
            wanted = EPOLLIN | EPOLLRDHUP
        if wanted != slot.armed:
            slot.armed = wanted
            if wanted:
                rmq_epoll_set(
                    self.epfd, EPOLL_CTL_MOD, slot.fd, wanted, self._token(index)
                )
            else:
                rmq_epoll_set(self.epfd, EPOLL_CTL_DEL, slot.fd, 0, 0)

    # -- held replies

    def attach_watermark(self, Watermark watermark not None, int64_t timeout_ms=5_000):
        """Release held replies by this watermark from now on.

        Those of compiled handlers are given up after `timeout_ms`.
        """
        self.detach_watermark()
        self.held_timeout_ms = timeout_ms
        self.watermark = watermark
        self.watermark_fd = watermark.subscribe()
        rmq_epoll_set(
            self.epfd, EPOLL_CTL_ADD, self.watermark_fd, EPOLLIN, WATERMARK_ID
        )

    def detach_watermark(self):
        """Forget the watermark; what is held stays until its deadline."""
        if self.watermark is not None:
            rmq_epoll_set(self.epfd, EPOLL_CTL_DEL, self.watermark_fd, 0, 0)
            self.watermark.unsubscribe(self.watermark_fd)
            self.watermark_fd = -1
            self.watermark = None

    def hold(
        self,
        uint64_t token,
        bytes data not None,
        int64_t watermark,
        int64_t deadline_ms,
        bytes timeout_data not None,
        int32_t code=-1,
        int64_t begun_ns=0,
    ):
        """Send `data` once the watermark is reached, `timeout_data` if not in time.

        `code` and `begun_ns` are those of `send`.
        False if the connection is gone or too much is held already.
        """
        if self.find(token) == NULL:
            return False
        if not self.held.keep(
            token, data, len(data), timeout_data, len(timeout_data),
            watermark, deadline_ms, code, begun_ns or self.begun_ns,
        ):
            return False
        self.send_outside_batch()
        return True

    def expire_held(self, int64_t now_ms):
        """Answer those whose deadline is over; to be called now and then.

        Returns [(token, reply)] of compiled handlers: their time-out reply is made from
        the reply that would have been sent.  Also tells the time to a reactor that is
        not polled because nothing happens.
        """
        cdef Held *held
        cdef Held *following
        cdef list late = []
        self.now_ms = now_ms
        self.release_held()     # what is durable is not late
        held = self.held.head
        while held != NULL:
            following = held.next
            if held.deadline_ms <= now_ms:
                if held.timeout_size == 0:
                    late.append((held.token, held.data[:held.size]))
                self.answer_held(held, True)
            held = following
        self.send_outside_batch()
        return late

    cdef void release_held(self) noexcept nogil:
        """Answer every held reply that the watermark has reached."""
        cdef int64_t reached
        if self.held.head == NULL or self.watermark_fd < 0:
            return
        reached = self.watermark.load()
        while self.held.head != NULL and self.held.head.watermark <= reached:
            self.answer_held(self.held.head, False)

    cdef void answer_held(self, Held *held, bint timed_out) noexcept nogil:
        """Move one held reply to its outbox and forget it."""
        cdef const uint8_t *data = held.data + held.size if timed_out else held.data
        cdef int64_t size = held.timeout_size if timed_out else held.size
        if self.find(held.token) != NULL:
            self.push(<uint32_t>held.token, data, size)
        if held.code >= 0:
            self.rpc_times.add(
                held.code, FLUSH_DISK_TIMEOUT if timed_out else SUCCESS,
                rmq_monotonic_ns() - held.begun_ns, 1,
            )
        self.held.forget(held)

    def statistics(self):
        """A picture of the counters."""
        return ReactorStatistics(
            self.connections, self.held.count, self.frames,
            self.bytes_in, self.bytes_out, self.polls, self.declined,
            self.buffer_bytes,
        )

    cdef bint make_room(self, uint32_t index, int64_t frame_size) noexcept nogil:
        """Have a buffer with room behind in_end, and for a frame of `frame_size`.

        Frames that are handed over but not taken yet stay where they are: nothing moves
        before in_start, and only `compact` shifts.
        """
        cdef Slot *slot = self.slots[index]
        cdef int64_t wanted = slot.in_start + frame_size
        cdef void *grown
        if slot.in_end == slot.in_capacity:
            wanted = max(wanted, slot.in_end + BUFFER_START)
        if wanted <= slot.in_capacity:
            return True
        if slot.in_capacity:
            wanted = max(
                wanted, min(2 * slot.in_capacity, <int64_t>(2 * RECEIVE_BYTES))
            )
        if not self.may_grow(index, slot.in_capacity, wanted):
            return False
        grown = realloc(slot.inbox, wanted)
        if grown == NULL:
            return False
        self.buffer_bytes += wanted - slot.in_capacity
        slot.inbox = <uint8_t *>grown
        slot.in_capacity = wanted
        return True

    cdef void compact(self, Slot *slot) noexcept nogil:
        """Drop the frames that were taken; give the buffer back if nothing is left."""
        cdef int64_t rest = slot.in_end - slot.in_start
        if slot.in_start == 0:
            return
        if rest == 0:
            self.buffer_bytes -= slot.in_capacity
            free(slot.inbox)
            slot.inbox = NULL
            slot.in_capacity = 0
        else:
            memmove(slot.inbox, slot.inbox + slot.in_start, rest)
        slot.in_start = 0
        slot.in_end = rest


cdef bint _grow(Conn *conn, int64_t size) noexcept nogil:
    """Have `size` free bytes in `ready`, in which nothing was written yet."""
    cdef Slot *slot
    if not (<Reactor>conn.owner).reserve(conn.slot, size):
        return False
    slot = (<Reactor>conn.owner).slots[conn.slot]
    conn.ready.end = slot.outbox + slot.out_end
    conn.ready.limit = slot.outbox + slot.out_capacity
    return True


cdef void *_grown(void *old, size_t size) except NULL:
    cdef void *grown = realloc(old, size)
    if grown == NULL:
        raise MemoryError
    return grown
