"""Reactor: all connections of the process over one epoll set.

`poll` works in three phases. The intake receives and splits off the frames of each
ready connection; the handlers end the poll and write their batches; each connection
sends once. It never blocks, and touches no Python object but the `ssl` objects of
connections with TLS. These let other threads run, so they are read before the first
frame of the poll is served, and written after the batch. The caller holds the GIL,
which is the lock of the store. `take_events` hands frames over to Python; replies come
back through `send` and leave with `flush`.

A `send` outside of these two may end a connection or let its frames be decoded again.
An eventfd of the set then wakes the owner. Limits: a poll receives at most POLL_BYTES
or for POLL_NS from connections with TLS, and as much from plain ones. `pacing.pxd` may
lower the bytes; `frame_decoder.pyx` has the limits of a connection. A poll that begins
late still serves one connection. Polls that reach a limit are a round: a connection
that was served waits until the others were. The trio task that owns the reactor calls
everything here.

Connections that send much in one poll are *heavy*. The others are served first, but
with at most half of a poll if heavy ones are ready. They have their replies before the
heavy ones are read. Rounds of light ones do not wait for heavy ones. So a small request
waits for the rest of one poll, and not for a round of large requests.
"""

import os

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t
from posix.unistd cimport close

from typing import NamedTuple

from rmq._fastpath.bytes.syscalls cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLLERR, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, epoll_create1, epoll_event, epoll_set, epoll_wait,
    eventfd, eventfd_drain, eventfd_wake, monotonic_ns, thread_ns,
)
from rmq._fastpath.reactor.connections cimport (
    EVENT_LIMIT, OPEN, SEND_BYTES, TRIO_ID, WAKE_ID, WATERMARK_ID, Connections, Slot,
    WireProtocol,
)
from rmq._fastpath.reactor.held_replies cimport HeldReplies
from rmq._fastpath.reactor.frame_decoder cimport SocketFrameDecoder
from rmq._fastpath.reactor.native_table cimport NativeTable
from rmq._fastpath.reactor.pacing cimport (
    LEAST_BYTES, adapt_bytes, begin_events, count_spin, end_events, init_pacing,
    spin_end, spin_pays,
)
from rmq._fastpath.reactor.rpc_times cimport RpcTimes
from rmq._fastpath.reactor.steps cimport STEP_BOUNDS, begin_step, end_step

cdef enum:
    POLL_NS = 500_000
    BUSY_NS = 1_000_000                 # longest work of a poll before other tasks run
    DISK_WAIT_MS = 1                    # for held replies before other tasks run
    LIGHT_BYTES = 4096                  # heavy connections send more than half of it


STEP_BOUNDS_S = (0.001, 0.002, 0.003, 0.004, 0.005, 0.01, 0.02, 0.05, 0.1)


class ReactorStatistics(NamedTuple):
    """Sums since the start, and the connections that are open now."""

    connections: int
    held: int
    frames: int
    bytes_in: int
    bytes_out: int
    polls: int
    spins: int
    declined: int
    buffer_bytes: int
    tls_connections: int
    tls_refused: int


@cython.final
cdef class Reactor:
    """The epoll set with its connections; its owner waits for `epfd`."""

    def __cinit__(
        self,
        *,
        int64_t max_frame_size=16 * 1024 * 1024,
        int64_t max_buffer_bytes=512 * 1024 * 1024,
        int64_t busy_poll_us=0,
    ):
        """`busy_poll_us`: time that a poll waits busily after work."""
        self.epfd = self.wake_fd = -1
        self.round_poll[:] = [1, 1]
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
        self.intake = SocketFrameDecoder(self.connections, self.natives, max_frame_size)

    def __dealloc__(self):
        if self.wake_fd >= 0:
            close(self.wake_fd)
        if self.epfd >= 0:
            close(self.epfd)

    # -- a poll, and its duration

    def poll(self, int64_t now_ms):
        """Serve the ready connections; True if there was work.

        Without work it returns at once, or after `busy_poll_us` without an event, or
        after DISK_WAIT_MS if replies wait for the disk.
        While all work is compiled, it continues for BUSY_NS. `now_ms` is any clock that
        grows; deadlines and idle times are measured by it.
        """
        cdef epoll_event ready[READY_LIMIT]
        cdef int count
        cdef int64_t started
        cdef bint is_busy
        self.connections.now_ms = now_ms
        self.intake.is_urgent = self.pacing.is_hurried
        self.pacing.is_hurried = False
        end_step(&self.steps, monotonic_ns())
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
            end_step(&self.steps, self.pacing.active_ns)
            count = self.wait(ready)
            if count > 0:
                self.serve_ready(ready, count)
        self.held.demand_flush()
        return is_busy

    def wake(self):
        """Wake the owner for a poll: Python has work for a compiled handler.

        The poll offers waiting frames to their handlers again.
        """
        eventfd_wake(self.wake_fd)

    def skip_wait(self):
        """Let the next poll return without a wait, because other tasks have work."""
        self.pacing.is_hurried = True

    cdef bint may_wait(self) noexcept nogil:
        """True if a wait here saves time: for the disk, or shortly after work.

        The wait for the disk sleeps: otherwise polls would repeat until the flush ends.
        """
        if self.connections.has_work() or self.has_more or self.intake.is_urgent:
            return False
        if self.has_slaves:
            return False        # slaves get the new records first
        return self.held.head != NULL or (
            self.pacing.busy_poll_ns > 0
            and spin_pays(&self.pacing, self.connections.polls)
        )

    cdef int wait(self, epoll_event *ready) noexcept:
        """Wait without the GIL until a descriptor is ready or the time is over."""
        with nogil:
            if self.held.head == NULL:
                return self.wait_busily(ready)
            return self.wait_for_disk(ready)

    cdef int wait_busily(self, epoll_event *ready) noexcept nogil:
        """Wait busily for the next request of a peer."""
        cdef int64_t now_ns = monotonic_ns()
        cdef int count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
        while count == 0 and now_ns < spin_end(&self.pacing):
            count = epoll_wait(self.epfd, ready, READY_LIMIT, 0)
            now_ns = monotonic_ns()
        count_spin(&self.pacing, count > 0, now_ns - self.pacing.active_ns)
        return count

    cdef int wait_for_disk(self, epoll_event *ready) noexcept nogil:
        """Sleep until the watermark advances or a peer sends; send durable replies.

        Replies leave from here, because the thread that flushed has the GIL now.
        """
        cdef int count
        self.held.demand_flush()     # not earlier, because the flush needs the GIL
        count = epoll_wait(self.epfd, ready, READY_LIMIT, DISK_WAIT_MS)
        self.held.release_reached()
        self.connections.send_dirty()
        return count

    cdef bint serve_ready(self, const epoll_event *ready, int count) noexcept nogil:
        """Run the three phases for the ready connections; False without work."""
        cdef int64_t at_ns, bytes_before = self.intake.bytes_in
        self.connections.polls += 1
        at_ns = self.connections.begun_ns = monotonic_ns()
        if self.has_inner_loop:
            begin_step(&self.steps, at_ns)
        self.intake.handed_limit = self.pacing.handed_limit
        self.intake.handed_bytes = self.large_begun_ns = 0
        self.is_limited[0] = self.is_limited[1] = False
        if self.connections.tls_count and count > 0:
            self.serve_all(ready, count, at_ns, True)
            at_ns = monotonic_ns()
        self.intake.cut_deferred(at_ns + POLL_NS // 2)
        self.serve_all(ready, count, monotonic_ns(), False)
        self.rotation += 1
        if not self.is_limited[0]:
            self.round_poll[0] = self.connections.polls + 1
            if not self.is_limited[1]:
                self.round_poll[1] = self.connections.polls + 1
        at_ns = self.end_batch(True)
        if self.large_begun_ns:
            adapt_bytes(&self.pacing, thread_ns() - self.large_begun_ns)
        self.last_bytes = self.intake.bytes_in - bytes_before
        if self.connections.other is not None and self.connections.other.event_count:
            self.intake.is_urgent = True
        if count > 0:
            self.pacing.active_ns = at_ns
        return count > 0 or self.has_more or self.connections.has_work()

    cdef int64_t end_batch(self, bint is_last) noexcept nogil:
        """Write the batch and send the replies; return the time.

        With the last batch of a poll, handlers continue kept requests.
        """
        cdef int64_t now_ns
        if not self.natives.end_of_poll(&self.intake.is_urgent):
            self.connections.drop_replies()
        elif is_last:
            self.has_more = self.natives.take_turns(&self.intake.is_urgent)
        self.held.release_reached()
        self.connections.send_dirty()
        now_ns = monotonic_ns()
        self.natives.count_times(self.rpc_times, now_ns - self.connections.begun_ns)
        return now_ns

    cdef void serve_all(
        self, const epoll_event *ready, int count, int64_t begun_ns, bint is_encrypted
    ) noexcept nogil:
        """Send and receive for the connections with TLS, or for the other ones.

        The light ones are served first, and have their replies before the heavy ones
        are read. The heavy ones have at least half of the bytes and of the time.
        """
        cdef const epoll_event *heavy[READY_LIMIT]
        cdef const epoll_event *light[READY_LIMIT]
        cdef const epoll_event *event
        cdef int i, heavy_count = 0, light_count = 0
        cdef Limits limits
        for i in range(count):
            event = &ready[(i + self.rotation) % count]
            if self.is_heavy(event):
                heavy[heavy_count] = event
                heavy_count += 1
            else:
                light[light_count] = event
                light_count += 1
        limits.start_bytes = self.intake.bytes_in
        limits.bytes = limits.start_bytes + self.pacing.byte_limit
        limits.until_ns = begun_ns + POLL_NS
        if heavy_count:
            if self.last_bytes >= LEAST_BYTES and self.large_begun_ns == 0:
                self.large_begun_ns = thread_ns()
            limits.bytes -= self.pacing.byte_limit // 2
            limits.until_ns -= POLL_NS // 2
        for i in range(light_count):
            self.serve_one(light[i], &limits, is_encrypted, False)
        if heavy_count == 0:
            return
        limits.bytes += self.pacing.byte_limit // 2
        limits.until_ns += POLL_NS // 2
        if self.intake.bytes_in > limits.start_bytes and not is_encrypted:
            limits.until_ns = self.end_batch(False) + POLL_NS // 2
        limits.start_bytes = self.intake.bytes_in
        for i in range(heavy_count):
            self.serve_one(heavy[i], &limits, is_encrypted, True)

    cdef bint is_heavy(self, const epoll_event *event) noexcept nogil:
        """True for a connection that has recently sent much in one poll."""
        cdef Slot *slot = self.connections.find(event.data.u64)
        return slot != NULL and slot.receive_size > LIGHT_BYTES

    cdef void serve_one(
        self,
        const epoll_event *event,
        const Limits *limits,
        bint is_encrypted,
        bint is_heavy,
    ) noexcept nogil:
        """Send and receive for one connection, within the limits of this poll.

        Connections with TLS are served in a pass of their own, with the special
        descriptors in the other one.
        """
        cdef Slot *slot
        cdef uint32_t index = <uint32_t>event.data.u64
        if is_encrypted and WATERMARK_ID <= event.data.u64 <= TRIO_ID:
            return
        if event.data.u64 == WATERMARK_ID:
            eventfd_drain(self.held.watermark_fd)
            return
        if event.data.u64 == WAKE_ID:
            eventfd_drain(self.wake_fd)
            self.connections.resume_reading()
            return
        if event.data.u64 == TRIO_ID:
            return      # trio looks itself before it sleeps
        slot = self.connections.find(event.data.u64)
        if slot == NULL or slot.state != OPEN or (slot.tls != NULL) != is_encrypted:
            return
        if event.events & EPOLLOUT and slot.served_poll != self.connections.polls:
            self.connections.send_pending(index, SEND_BYTES)
        if not event.events & (EPOLLIN | EPOLLHUP | EPOLLERR | EPOLLRDHUP):
            return
        if event.events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP) and (
            self.connections.event_count >= self.pacing.handed_limit
        ):
            return      # an end is work for Python, too: leave it to a later poll
        if self.connections.event_count >= EVENT_LIMIT:
            return
        if slot.is_uncut or slot.is_paused or slot.is_waiting:
            return      # read no more before its frames are handed over
        if slot.state != OPEN or not slot.armed & EPOLLIN:
            return
        if self.round_poll[is_heavy] <= slot.served_poll < self.connections.polls:
            return      # others that are ready come first
        if self.intake.bytes_in > limits.start_bytes and (
            self.intake.bytes_in >= limits.bytes or monotonic_ns() >= limits.until_ns
        ):
            self.is_limited[is_heavy] = True
            return
        if is_encrypted:
            self.intake.receive_encrypted(index, limits.until_ns)
        else:
            self.intake.receive(index)

    def serve_http2(self, WireProtocol protocol not None, listeners):
        """Serve connections of these listeners that begin with HTTP/2."""
        self.connections.other = protocol
        for listener in listeners:
            self.connections.other_listeners |= 1 << <int>listener

    # -- frames that Python serves

    @property
    def has_events(self):
        """True if there are events for `take_events`."""
        return self.connections.event_count > 0

    def take_events(self):
        """Return [(kind, token, frame or None)] of the last poll, with copies of
        frames.

        Until `flush`, replies collect, so that each connection gets one send.
        """
        begin_events(&self.pacing, self.connections.event_count)
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
        """Append `data` to the outbox; False if the connection is closed.

        `code` and `response` are for the histogram of durations; a code of -1 counts
        nothing. The duration is since `begun_ns`, or since the start of this poll.
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
        """Send now unless `flush` will; wake the owner if that causes work."""
        if self.is_collecting:
            return
        self.held.release_reached()
        self.connections.send_dirty()
        if self.connections.has_work():
            eventfd_wake(self.wake_fd)

    def flush(self):
        """Send the replies since `take_events`; True if frames wait to be decoded."""
        self.is_collecting = False
        end_events(&self.pacing)
        self.held.release_reached()
        self.connections.send_dirty()
        return self.connections.uncut_count > 0

    # -- held replies

    def hold_reply(
        self,
        uint64_t token,
        bytes data not None,
        int64_t watermark,
        int64_t deadline_ms,
        bytes timeout_data not None,
        int32_t code=-1,
        int64_t begun_ns=0,
    ):
        """Send `data` when the watermark is reached, `timeout_data` if it times out.

        `code` and `begun_ns` are as in `send`. False if the connection is closed or the
        held replies have too many bytes.
        """
        if self.connections.find(token) == NULL:
            return False
        if not self.held.has_room(len(data) + len(timeout_data)):
            return False
        if not self.held.hold_reply(
            token, data, len(data), timeout_data, len(timeout_data), watermark,
            deadline_ms, code, begun_ns or self.connections.begun_ns, 0,
        ):
            return False
        self.send_unless_collecting()
        return True

    def expire_held(self, int64_t now_ms):
        """Send time-out replies; to be called while replies are held.

        Returns [(token, reply, code)] of the held replies without a time-out reply. The
        caller makes it from the normal reply and this code.
        """
        self.connections.now_ms = now_ms
        late = self.held.expire(now_ms)
        self.send_unless_collecting()
        return late

    def step_times(self):
        """Return the number of steps between each bound of STEP_BOUNDS_S and the one
        before, the longer ones last, and the seconds of all steps.

        Steps are counted while there is an inner loop.
        """
        counts = [self.steps.counts[i] for i in range(STEP_BOUNDS + 1)]
        return counts, self.steps.sum_ns / 1e9

    def statistics(self):
        """Return the counters."""
        return ReactorStatistics(
            self.connections.count, self.held.count, self.intake.frames,
            self.intake.bytes_in, self.connections.bytes_out, self.connections.polls,
            self.pacing.spins, self.intake.declined, self.connections.budget.used,
            self.connections.tls_count, self.connections.tls_refused,
        )
