"""InnerLoop: the reactor serves requests while trio would sleep.

trio calls `before_io_wait(timeout)` of its instruments before it sleeps, on its thread.
The wait happens there instead, in the reactor's epoll set, which contains trio's own.
So compiled requests cost no task switch and no line of Python, and the requests that
Python serves cost no task switch.
Python is needed for its frames, for ends of connections, for messages that it waits
for, and while replies wait for the disk. It is also needed PATIENCE_NS after the first
request of which Python was not notified. NOTIFY_BYTES of input shorten that to
LOADED_PATIENCE_NS, because Python prepares room in the store.
With slaves it is needed after each round, because Python sends them the new records and
replies may wait for them.  If no reply waits for slaves, it is needed after
`replication_interval_ns`.

`serve_events` of the owner then runs right here, without a current task. The wait
continues until trio has work: a ready descriptor, a task that Python has started or
woken, a deadline that is over. It also ends while replies wait for the disk, and if
trio has ready tasks already. Unless trio wakes up by itself, `signal_fd` wakes it: the
owner of the reactor waits for that descriptor and serves the rest.

trio removes an instrument that raises. So an error of `serve_events` waits until the
owner calls `drain_signal`, which raises it in the owner's task.
The wait itself releases the GIL; requests are served with it, as in `Reactor.poll`.
A hook that cannot continue wakes its owner first, which then waits for the reactor
itself.
"""

import os

cimport cython
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.unistd cimport close

from rmq._fastpath.bytes.syscalls cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLLET, EPOLLIN, EPOLL_CTL_ADD, EPOLL_CTL_DEL, POLLIN,
    POLLNVAL, epoll_event, epoll_set, epoll_wait, eventfd, eventfd_drain, eventfd_wake,
    monotonic_ns, poll, pollfd,
)
from rmq._fastpath.reactor.connections cimport TRIO_ID
from rmq._fastpath.reactor.pacing cimport spin_end
from rmq._fastpath.reactor.reactor cimport READY_LIMIT, Reactor
from rmq._fastpath.reactor.steps cimport begin_step, end_step

cdef enum:
    PATIENCE_NS = 1_000_000_000     # longest delay of a notification
    LOADED_PATIENCE_NS = 20_000_000     # after NOTIFY_BYTES
    NOTIFY_BYTES = 1024 * 1024
    TIMEOUT_LIMIT_S = 3_600
    MILLISECOND_NS = 1_000_000


cdef int64_t _end_of(double seconds) noexcept:
    """Return the monotonic time after a number of seconds, in nanoseconds."""
    return monotonic_ns() + <int64_t>(
        min(max(seconds, 0.0), <double>TIMEOUT_LIMIT_S) * 1e9
    )


@cython.final
cdef class InnerLoop:
    """An instrument of trio that waits for a reactor."""

    def __cinit__(
        self,
        Reactor reactor not None,
        int trio_fd,
        int64_t now_ms,
        serve_events not None,
        seconds_left not None,
    ):
        """`trio_fd` becomes readable when trio has work; `now_ms` is as in `poll`.

        `serve_events()` serves all events that wait for Python. `seconds_left()`
        returns how long trio may sleep then, 0 if it has ready tasks.
        """
        self.signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.signal_fd < 0 or epoll_set(
            reactor.epfd, EPOLL_CTL_ADD, trio_fd, EPOLLIN | EPOLLET, TRIO_ID
        ):
            raise OSError(errno, f"descriptor {trio_fd} of trio: {os.strerror(errno)}")
        self.reactor = reactor
        self.trio_fd = trio_fd
        self.serve_events = serve_events
        self.seconds_left = seconds_left
        self.clock_ns = now_ms * 1_000_000 - monotonic_ns()
        reactor.has_inner_loop = True

    def __dealloc__(self):
        if self.signal_fd >= 0:
            close(self.signal_fd)

    def before_io_wait(self, double timeout):
        """Wait instead of trio, for at most `timeout` seconds.

        A `timeout` of 0 means that other tasks are ready. Even then it serves the
        requests that have come: a busy program must not starve the reactor.
        """
        cdef Outcome outcome
        cdef int64_t end_ns
        if self.is_broken:
            return
        self.waits += 1
        end_ns = _end_of(timeout)
        outcome = self.wait(end_ns)
        while outcome == NOTIFY and timeout > 0 and self.may_serve_here():
            end_ns = min(end_ns, self.serve_here())
            if monotonic_ns() >= end_ns or self.poll_trio() != TIME_OVER:
                break
            outcome = self.wait(end_ns)
        if outcome == TRIO_READY or (outcome == TIME_OVER and timeout <= 0):
            return
        self.notify_at_ns = 0
        eventfd_wake(self.signal_fd)
        if outcome == UNUSABLE:
            self.stop_waiting()
            raise OSError(f"descriptor {self.trio_fd} of trio is no longer open")

    cdef bint may_serve_here(self) noexcept:
        """True unless the owner's task has to do it."""
        return self.error is None and not self.waits_for_disk()

    cdef int64_t serve_here(self) noexcept:
        """Let Python serve the events that wait for it; return when trio has to wake
        up.
        """
        self.turns += 1
        self.notify_at_ns = 0
        self.reactor.intake.is_urgent = self.reactor.pacing.is_hurried = False
        try:
            self.serve_events()
            return _end_of(self.seconds_left())
        except BaseException as error:
            self.error = error
        return 0

    def stop_waiting(self):
        """Stop: trio waits itself from now on."""
        self.is_broken = True
        self.reactor.has_inner_loop = False
        self.reactor.steps.begun_ns = 0
        epoll_set(self.reactor.epfd, EPOLL_CTL_DEL, self.trio_fd, 0, TRIO_ID)

    def drain_signal(self):
        """Clear the signal: its owner is awake. Raises an error of `serve_events`."""
        eventfd_drain(self.signal_fd)
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    cdef Outcome wait(self, int64_t end_ns) noexcept:
        """Serve until Python or trio has work, or until `end_ns`.

        Requests that have come are served first: other tasks may run for milliseconds
        before the owner's.
        """
        cdef epoll_event ready[READY_LIMIT]
        cdef int count
        cdef int64_t now_ns, left_ns
        cdef bint has_served = False, is_trio_ready, has_more, is_due
        cdef Outcome seen = self.poll_trio()
        if seen == UNUSABLE:
            return UNUSABLE
        is_trio_ready = seen == TRIO_READY
        while not (
            self.reactor.connections.event_count > 0
            or self.reactor.intake.is_urgent
            or self.reactor.pacing.is_hurried
            or self.waits_for_disk()
        ):
            now_ns = monotonic_ns()
            is_due = self.notify_at_ns > 0 and now_ns >= self.notify_at_ns
            if has_served and is_due:
                return NOTIFY
            if has_served and is_trio_ready:
                return TRIO_READY
            if has_served and now_ns >= end_ns:
                return TIME_OVER
            left_ns = max(end_ns - now_ns, <int64_t>0)
            has_more = self.reactor.has_more or self.reactor.connections.uncut_count > 0
            if has_more or is_trio_ready or is_due:
                left_ns = 0
            elif self.notify_at_ns:
                left_ns = min(left_ns, self.notify_at_ns - now_ns)
            end_step(&self.reactor.steps, now_ns)
            with nogil:
                count = self.find_ready(ready, left_ns, has_served)
            if count < 0:
                if errno != EINTR:
                    return UNUSABLE
                continue
            is_trio_ready |= self.remove_trio(ready, &count)
            if count > 0 or has_more:
                self.serve(ready, count)
                has_served = True
                if (
                    self.reactor.has_slaves
                    and self.reactor.replication_interval_ns == 0
                ):
                    return NOTIFY
            elif is_due or is_trio_ready or left_ns == 0:
                begin_step(&self.reactor.steps, monotonic_ns())
                if is_due:
                    return NOTIFY
                return TRIO_READY if is_trio_ready else TIME_OVER
        return NOTIFY

    cdef int find_ready(
        self, epoll_event *ready, int64_t left_ns, bint has_served
    ) noexcept nogil:
        """Wait for ready descriptors, after work busily at first."""
        cdef int count = 0
        if has_served and self.reactor.may_wait() and (
            monotonic_ns() < spin_end(&self.reactor.pacing)
        ):
            count = self.reactor.wait_busily(ready)
        if count > 0:
            return count
        return epoll_wait(
            self.reactor.epfd, ready, READY_LIMIT,
            <int>((left_ns + MILLISECOND_NS - 1) // MILLISECOND_NS),
        )

    cdef bint waits_for_disk(self) noexcept nogil:
        """True while replies wait for the disk: `Reactor.poll` waits for it."""
        return self.reactor.held.head != NULL and not self.reactor.has_slaves

    cdef Outcome poll_trio(self) noexcept nogil:
        """Poll trio's set directly, as the reactor's edge-triggered set reports changes
        once.
        """
        cdef pollfd trio
        trio.fd, trio.events, trio.revents = self.trio_fd, POLLIN, 0
        if poll(&trio, 1, 0) <= 0:
            return TIME_OVER
        return UNUSABLE if trio.revents & POLLNVAL else TRIO_READY

    cdef bint remove_trio(self, epoll_event *ready, int *count) noexcept nogil:
        """Remove trio's set from the ready descriptors; True if it was there."""
        cdef int i
        for i in range(count[0]):
            if ready[i].data.u64 == TRIO_ID:
                count[0] -= 1
                ready[i] = ready[count[0]]
                return True
        return False

    cdef void serve(self, const epoll_event *ready, int count) noexcept:
        """Serve the ready connections, and set the time of Python's notification."""
        cdef int64_t now_ns = monotonic_ns()
        if not self.notify_at_ns:
            self.notify_at_ns = now_ns + PATIENCE_NS
            if self.reactor.has_slaves:
                self.notify_at_ns = now_ns + self.reactor.replication_interval_ns
            self.notify_bytes = self.reactor.intake.bytes_in + NOTIFY_BYTES
        self.reactor.connections.now_ms = (now_ns + self.clock_ns) // MILLISECOND_NS
        self.reactor.serve_ready(ready, count)
        self.reactor.held.demand_flush()
        self.rounds += 1
        if self.reactor.intake.bytes_in >= self.notify_bytes:
            self.notify_at_ns = min(self.notify_at_ns, now_ns + LOADED_PATIENCE_NS)
