"""Reactor: every plain connection of the process over one epoll set.

`poll` works in three phases: receive and cut the frames of each ready connection, end
the poll (what was served is written), send once for each connection.  It touches no
Python object and never blocks; it is entered with the GIL held, which is the lock of
the store.  Frames are handed over by `take_events`; replies come back through `send`
and leave with `flush`.

A `send` outside of these two may end a connection or let its frames be cut again: an
eventfd of the set then wakes the owner.
Limits: a poll receives at most POLL_BYTES or for POLL_NS; a connection RECEIVE_BYTES of
it, FRAMES_PER_CONNECTION, and as many for Python as `pacing.pxd` says; a frame has
max_frame_size.  A connection whose frames wait to be handed over is not read either.
The trio task that owns the reactor calls everything here.
"""

import os

cimport cython
from libc.errno cimport EAGAIN, EINTR, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from posix.unistd cimport close

from typing import NamedTuple

from rmq._fastpath.buffers cimport Buffer, waiting
from rmq._fastpath.connections cimport (
    BUFFER_START, CONNECTION_BROKEN, EVENT_LIMIT, FRAME, FRAME_TOO_LARGE,
    FRAME_TOO_SMALL, HEADER_TOO_LARGE, OPEN, OUT_OF_MEMORY, PEER_CLOSED,
    RECEIVE_BYTES, SEND_BYTES, TRIO_ID, WAKE_ID, WATERMARK_ID, Connections, Slot,
)
from rmq._fastpath.endian cimport get32
from rmq._fastpath.held_replies cimport HeldReplies
from rmq._fastpath.native cimport DECLINED, WAITS, Verdict
from rmq._fastpath.native_table cimport NativeTable
from rmq._fastpath.pacing cimport (
    HANDED_PER_CONNECTION, init_pacing, note_finished, note_spin, note_taken, spin_end,
    spin_pays,
)
from rmq._fastpath.rpc_times cimport RpcTimes
from rmq._fastpath.syscalls cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, MSG_DONTWAIT, epoll_create1, epoll_event, epoll_set,
    epoll_wait, eventfd, eventfd_drain, eventfd_wake, monotonic_ns, recv,
)

cdef enum:
    FRAMES_PER_CONNECTION = 512
    POLL_BYTES = 1 << 20
    POLL_NS = 500_000
    BUSY_NS = 1_000_000                 # of work in one poll before others run
    DISK_WAIT_MS = 1                    # for held replies before others run
    OUTBOX_PAUSE = 256 * 1024
    HEADER_LIMIT = 1 << 20              # 5 ms at worst; properties have 32 KiB


class ReactorStatistics(NamedTuple):
    """Sums since the start, and what is open now."""

    connections: int
    held: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    spins: int
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
        self.epfd = self.wake_fd = -1
        self.max_frame_size = max_frame_size
        init_pacing(&self.pacing, busy_poll_us * 1000)
        self.epfd = epoll_create1(EPOLL_CLOEXEC)
        if self.epfd < 0:
            raise OSError(errno, os.strerror(errno))
        self.wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.wake_fd < 0 or epoll_set(
            self.epfd, EPOLL_CTL_ADD, self.wake_fd, EPOLLIN, WAKE_ID
        ):
            raise OSError(errno, os.strerror(errno))
        self.rpc_times = RpcTimes()
        self.connections = Connections(self.epfd, max_buffer_bytes)
        self.held = HeldReplies(self.connections, self.rpc_times)
        self.natives = NativeTable(self.connections, self.held)

    def __dealloc__(self):
        if self.wake_fd >= 0:
            close(self.wake_fd)
        if self.epfd >= 0:
            close(self.epfd)

    # -- a poll, and how long it goes on

    def poll(self, int64_t now_ms):
        """Serve what is ready; True if anything was.

        Without work it returns at once, or when nothing has come for `busy_poll_us`, or
        from the disk for DISK_WAIT_MS where replies wait for it.
        While work comes that Python need not hear of, it goes on for BUSY_NS.
        `now_ms` is any clock that grows; deadlines and idle times are measured by it.
        """
        cdef epoll_event ready[READY_LIMIT]
        cdef int count
        cdef int64_t started
        cdef bint is_busy
        self.connections.now_ms = now_ms
        self.is_urgent = self.pacing.is_hurried
        self.pacing.is_hurried = False
        count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
        if count <= 0 and self.may_wait() and (
            self.held.head != NULL or monotonic_ns() < spin_end(&self.pacing)
        ):
            count = self.wait(ready)
        is_busy = self.serve_ready(ready, count)
        started = self.pacing.active_ns
        while count > 0 and self.may_wait():
            if self.pacing.active_ns - started >= BUSY_NS:
                break
            count = self.wait(ready)
            if count > 0:
                self.serve_ready(ready, count)
        self.held.demand_flush()
        return is_busy

    def wake(self):
        """Have the owner poll soon: a compiled handler has work that Python made.

        Frames that wait are offered to their handlers again.
        """
        eventfd_wake(self.wake_fd)

    def hurry(self):
        """Let the next poll wait for nothing: other tasks have work to go on with."""
        self.pacing.is_hurried = True

    cdef bint may_wait(self) noexcept nogil:
        """True if waiting here pays: for the disk, or as there was work just now.

        For the disk it is no busy waiting: a poll that did not sleep would come by
        again and again until the flush is over.
        """
        if self.connections.has_work() or self.has_more or self.is_urgent:
            return False
        if self.is_followed:
            return False        # replicas get first what was stored
        return self.held.head != NULL or (
            self.pacing.busy_poll_ns > 0
            and spin_pays(&self.pacing, self.connections.polls)
        )

    cdef int wait(self, epoll_event *ready) noexcept:
        """Ask once, then until something is ready or the time is over; no GIL."""
        with nogil:
            if self.held.head == NULL:
                return self.spin(ready)
            return self.wait_for_disk(ready)

    cdef int spin(self, epoll_event *ready) noexcept nogil:
        """Wait busily for what a peer sends after its answer."""
        cdef int64_t now_ns = monotonic_ns()
        cdef int count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
        while count == 0 and now_ns < spin_end(&self.pacing):
            count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
            now_ns = monotonic_ns()
        note_spin(&self.pacing, count > 0, now_ns - self.pacing.active_ns)
        return count

    cdef int wait_for_disk(self, epoll_event *ready) noexcept nogil:
        """Sleep until the watermark moves or a peer sends; answer what is durable.

        Answers leave from here, as the thread that flushed has the GIL now.
        """
        cdef int count
        self.held.demand_flush()     # not before: the thread that flushes needs the GIL
        count = epoll_wait(self.epfd, ready, READY_LIMIT, DISK_WAIT_MS)
        self.held.release()
        self.connections.send_dirty()
        return count

    cdef bint serve_ready(self, const epoll_event *ready, int count) noexcept nogil:
        """The three phases for what is ready; False without work."""
        cdef int i
        cdef int64_t begun, ended, byte_limit = self.bytes_in + POLL_BYTES
        self.connections.polls += 1
        begun = self.connections.begun_ns = monotonic_ns()
        self.cut_uncut()
        for i in range(count):
            self.serve_one(&ready[(i + self.rotation) % count], byte_limit)
        self.rotation += 1
        if self.natives.end_of_poll(&self.is_urgent):
            self.has_more = self.natives.take_turns(&self.is_urgent)
        else:
            self.connections.drop_replies()
        self.held.release()
        self.connections.send_dirty()
        ended = monotonic_ns()
        if count > 0:
            self.pacing.active_ns = ended
        self.natives.note_times(self.rpc_times, ended - begun)
        return count > 0 or self.has_more or self.connections.has_work()

    # -- first phase: receive, cut, serve

    cdef void serve_one(
        self, const epoll_event *event, int64_t byte_limit
    ) noexcept nogil:
        """Send and receive for one connection, as far as this poll goes."""
        cdef Slot *slot
        cdef uint32_t index = <uint32_t>event.data.u64
        if event.data.u64 == WATERMARK_ID:
            eventfd_drain(self.held.watermark_fd)
            return
        if event.data.u64 == WAKE_ID:
            eventfd_drain(self.wake_fd)
            self.connections.resume_waiting()
            return
        if event.data.u64 == TRIO_ID:
            return      # trio looks itself before it sleeps
        slot = self.connections.find(event.data.u64)
        if slot == NULL or slot.state != OPEN:
            return
        if event.events & EPOLLOUT:
            self.connections.send_pending(index, SEND_BYTES)
        if not event.events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP):
            return
        if self.bytes_in >= byte_limit or self.connections.event_count >= EVENT_LIMIT:
            return
        if monotonic_ns() - self.connections.begun_ns >= POLL_NS:
            return
        if slot.is_uncut or slot.is_paused or slot.is_waiting:
            return      # no more before what it sent is handed over
        if slot.state == OPEN and slot.armed & EPOLLIN:
            self.receive(index)

    cdef void receive(self, uint32_t index) noexcept nogil:
        """Take what the socket has, up to the limits, and cut it into frames."""
        cdef Slot *slot = self.connections.slots[index]
        cdef Buffer *inbox = &slot.inbox
        cdef int64_t total = 0, room
        cdef ssize_t got
        if slot.handed == 0:
            self.connections.compact(slot)
        if not waiting(inbox):
            slot.frame_ms = self.connections.now_ms
        while total < RECEIVE_BYTES:
            if inbox.end == inbox.capacity and not self.connections.make_room(
                index, self.connections.receive_room(slot)
            ):
                if inbox.start == 0:
                    self.connections.fail(index, OUT_OF_MEMORY)
                return
            room = min(inbox.capacity - inbox.end, <int64_t>RECEIVE_BYTES)
            got = recv(slot.fd, inbox.data + inbox.end, room, MSG_DONTWAIT)
            if got < 0 and errno == EINTR:
                continue
            if got <= 0:
                if got < 0 and errno == EAGAIN:
                    break
                self.cut(index)
                self.connections.fail(
                    index, PEER_CLOSED if got == 0 else CONNECTION_BROKEN
                )
                return
            inbox.end += got
            total += got
            self.bytes_in += got
            slot.active_ms = self.connections.now_ms
            self.cut(index)
            if got < room or slot.state != OPEN:
                break
            if slot.is_uncut or slot.is_paused or slot.is_waiting:
                break
        if total >= slot.receive_size:
            slot.receive_size = min(2 * total, <int64_t>RECEIVE_BYTES)
        elif total < slot.receive_size // 4:
            slot.receive_size = max(slot.receive_size // 2, <int64_t>BUFFER_START)
        if slot.handed == 0:
            self.connections.compact(slot)

    cdef void cut_uncut(self) noexcept nogil:
        """Cut what found no room in the last poll, and gets no event of its own.

        In turns: those of which Python got frames in the last poll come last.
        """
        cdef int64_t i, count = self.connections.uncut_count
        cdef int64_t first = self.connections.uncut_served
        cdef uint32_t index
        cdef uint32_t *before = self.connections.uncut
        cdef Slot *slot
        self.connections.uncut = self.connections.uncut_before
        self.connections.uncut_before = before
        self.connections.uncut_count = self.connections.uncut_served = 0
        for i in range(count):
            self.connections.slots[before[i]].is_uncut = False
        for i in range(count):
            index = before[(first + i) % count]
            slot = self.connections.slots[index]
            if slot.fd >= 0:
                self.cut(index)
                if slot.handed == 0:
                    self.connections.compact(slot)
                elif slot.is_uncut:
                    self.connections.uncut_served += 1

    cdef void cut(self, uint32_t index) noexcept nogil:
        """Serve or hand over the whole frames of the inbox."""
        cdef Slot *slot = self.connections.slots[index]
        cdef Buffer *inbox = &slot.inbox
        cdef int64_t size
        cdef int handed = 0
        cdef bint is_after
        cdef Verdict verdict
        while slot.state == OPEN:
            size = self.frame_size(index)
            if size == 0:
                return
            if waiting(&slot.outbox) > OUTBOX_PAUSE:
                slot.is_paused = True
                return
            if (
                self.connections.event_count >= EVENT_LIMIT
                or handed >= FRAMES_PER_CONNECTION
                or slot.handed >= HANDED_PER_CONNECTION
            ):
                self.connections.leave_uncut(index)
                return
            verdict = DECLINED
            is_after = slot.declined_poll == self.connections.polls
            if slot.is_declined:    # in the poll before; those after it stay after it
                slot.declined_poll = self.connections.polls
            else:
                verdict = self.natives.serve(index, inbox.data + inbox.start, size)
            if verdict == WAITS:
                self.connections.leave_waiting(index)
                self.is_urgent = True
                return
            slot.is_declined = False
            if verdict == DECLINED and (
                self.connections.event_count >= self.pacing.handed_limit
            ):
                slot.is_declined = not is_after     # by its handler, not for the order
                self.connections.leave_uncut(index)
                return
            if verdict == DECLINED:
                self.connections.add_event(FRAME, index, inbox.start, size)
                slot.handed += 1
                self.declined += 1
            inbox.start += size
            slot.frame_ms = self.connections.now_ms
            slot.has_spoken = True
            self.frames += 1
            handed += 1

    cdef int64_t frame_size(self, uint32_t index) noexcept nogil:
        """Size of the whole frame that begins the inbox, 0 if there is none.

        The inbox grows for one that is larger; a frame that cannot be ends the
        connection.
        """
        cdef Buffer *inbox = &self.connections.slots[index].inbox
        cdef int64_t have = waiting(inbox)
        cdef int64_t size
        cdef const uint8_t *p = inbox.data + inbox.start
        if have < 4:
            return 0
        size = <int64_t>get32(p) + 4
        if size - 4 > self.max_frame_size:
            self.connections.fail(index, FRAME_TOO_LARGE)
            return 0
        if size < 8:
            self.connections.fail(index, FRAME_TOO_SMALL)
            return 0
        if have >= 8 and <int64_t>(get32(p + 4) & 0xFFFFFF) > min(
            size - 8, <int64_t>HEADER_LIMIT
        ):
            self.connections.fail(index, HEADER_TOO_LARGE)
            return 0
        if have >= size:
            return size
        if size > inbox.capacity - inbox.start:
            self.connections.make_room(index, min(size, 4 * have))
        return 0

    # -- what Python serves

    @property
    def has_events(self):
        """True if `take_events` has something."""
        return self.connections.event_count > 0

    def take_events(self):
        """[(kind, token, frame or None)] of the last poll; frames are copied out.

        Until `flush`, replies only collect, so that each connection gets one send.
        """
        note_taken(&self.pacing, self.connections.event_count)
        self.is_collecting = True
        return self.connections.take_events()

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
        if self.connections.find(token) == NULL:
            return False
        if not self.connections.push(<uint32_t>token, data, len(data)):
            return False
        if code >= 0:
            begun_ns = begun_ns or self.connections.begun_ns
            self.rpc_times.add(code, response, monotonic_ns() - begun_ns, 1)
        self.send_unless_collecting()
        return True

    cdef void send_unless_collecting(self) noexcept nogil:
        """Send now unless `flush` will; wake the owner for what comes of it."""
        if self.is_collecting:
            return
        self.held.release()
        self.connections.send_dirty()
        if self.connections.has_work():
            eventfd_wake(self.wake_fd)

    def flush(self):
        """Send what collected since `take_events`; True if frames wait to be cut."""
        self.is_collecting = False
        note_finished(&self.pacing)
        self.held.release()
        self.connections.send_dirty()
        return self.connections.uncut_count > 0

    # -- held replies

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
        if self.connections.find(token) == NULL:
            return False
        if not self.held.has_room(len(data) + len(timeout_data)):
            return False
        if not self.held.keep(
            token, data, len(data), timeout_data, len(timeout_data), watermark,
            deadline_ms, code, begun_ns or self.connections.begun_ns,
        ):
            return False
        self.send_unless_collecting()
        return True

    def expire_held(self, int64_t now_ms):
        """Answer those whose deadline is over; to be called while replies are held.

        Returns [(token, reply, code)] of those without a time-out reply: it is made
        from the reply that would have been sent, with this code.
        """
        self.connections.now_ms = now_ms
        late = self.held.expire(now_ms)
        self.send_unless_collecting()
        return late

    def statistics(self):
        """A picture of the counters."""
        return ReactorStatistics(
            self.connections.count, self.held.count, self.frames,
            self.bytes_in, self.connections.bytes_out, self.connections.polls,
            self.pacing.spins, self.declined, self.connections.budget.used,
        )
