"""InnerLoop: the reactor serves compiled requests while trio would sleep.

trio calls `before_io_wait(timeout)` of its instruments before it sleeps, on its thread.
The wait happens there instead, for the reactor's epoll set and for trio's own: what
compiled handlers serve costs no task switch and no line of Python.  It ends when trio's
set is ready, when the time is over, when Python must hear of something (frames for
it, ends of connections, messages that Python waits for, replies that wait for the
disk), or PATIENCE_NS after the first request; sooner, once TELL_BYTES came in, because
Python makes room in the store ahead of them.  Unless trio wakes up by itself,
`signal_fd` wakes it: the owner of the reactor waits for that descriptor.

The wait itself releases the GIL; what is ready is served with it, as in `Reactor.poll`.
A hook that cannot go on wakes its owner first, who then waits for the reactor itself.
"""

import os

cimport cython
from libc.errno cimport EINTR, errno
from libc.stdint cimport int64_t
from posix.unistd cimport close

from rmq._fastpath.pacing cimport spin_end
from rmq._fastpath.reactor cimport READY_LIMIT, Reactor
from rmq._fastpath.syscalls cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, POLLIN, POLLNVAL, epoll_event, epoll_wait, eventfd,
    eventfd_drain, eventfd_wake, monotonic_ns, poll_both, pollfd,
)

cdef enum:
    PATIENCE_NS = 200_000_000       # what Python need not hear of at once waits so long
    LOADED_PATIENCE_NS = 20_000_000     # after TELL_BYTES
    TELL_BYTES = 64 * 1024
    TIMEOUT_LIMIT_S = 3_600


@cython.final
cdef class InnerLoop:
    """An instrument of trio that waits for a reactor."""

    def __cinit__(self, Reactor reactor not None, int trio_fd, int64_t now_ms):
        """`trio_fd` becomes readable when trio has work; `now_ms` as in `poll`."""
        self.signal_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
        if self.signal_fd < 0:
            raise OSError(errno, os.strerror(errno))
        self.reactor = reactor
        self.trio_fd = trio_fd
        self.clock_ns = now_ms * 1_000_000 - monotonic_ns()

    def __dealloc__(self):
        if self.signal_fd >= 0:
            close(self.signal_fd)

    def before_io_wait(self, double timeout):
        """Wait in trio's place, for `timeout` seconds at most.

        With 0, as other tasks are ready, what has come is served all the same: a busy
        program must not make the reactor deaf.
        """
        cdef Outcome outcome
        cdef double limited = min(max(timeout, 0.0), <double>TIMEOUT_LIMIT_S)
        if self.is_broken:
            return
        self.waits += 1
        outcome = self.wait(monotonic_ns() + <int64_t>(limited * 1e9))
        if outcome == TRIO_READY or (outcome == TIME_OVER and timeout <= 0):
            return
        self.is_broken = outcome == UNUSABLE
        eventfd_wake(self.signal_fd)
        if self.is_broken:
            raise OSError(f"descriptor {self.trio_fd} of trio is no longer open")

    def rest(self):
        """Take the signal back: its owner is awake."""
        eventfd_drain(self.signal_fd)

    cdef Outcome wait(self, int64_t end_ns) noexcept:
        cdef epoll_event ready[READY_LIMIT]
        cdef pollfd both[2]
        cdef int count
        cdef int64_t now_ns, left_ns, begun_ns = 0, tell_bytes = 0
        cdef int64_t bytes_in = self.reactor.bytes_in
        cdef bint has_served = False
        both[0].fd, both[0].events = self.reactor.epfd, POLLIN
        both[1].fd, both[1].events = self.trio_fd, POLLIN
        while not (
            self.reactor.connections.has_work()
            or self.reactor.is_urgent
            or self.reactor.pacing.is_hurried
            or self.reactor.held.head != NULL
        ):
            now_ns = monotonic_ns()
            left_ns = max(end_ns - now_ns, <int64_t>0)
            if self.reactor.has_more:
                if has_served and left_ns == 0:
                    return TELL
                left_ns = 0
            count = 0
            with nogil:
                if has_served and self.reactor.may_wait() and (
                    now_ns < spin_end(&self.reactor.pacing)
                ):
                    count = self.reactor.spin(ready)
                if count <= 0:
                    count = poll_both(both, left_ns)
                    if count > 0:
                        count = 0 if both[1].revents else epoll_wait(
                            self.reactor.epfd, ready, READY_LIMIT, 0
                        )
                    else:
                        both[0].revents = both[1].revents = 0
            if both[1].revents & POLLNVAL or (count < 0 and errno != EINTR):
                return UNUSABLE
            if both[1].revents:
                return TELL if has_served else TRIO_READY
            if count <= 0 and not self.reactor.has_more:
                if left_ns == 0:
                    return TELL if has_served else TIME_OVER
                continue
            count = max(count, 0)
            now_ns = monotonic_ns()
            self.reactor.connections.now_ms = (now_ns + self.clock_ns) // 1_000_000
            self.reactor.serve_ready(ready, count)
            self.reactor.held.demand_flush()
            self.rounds += 1
            if not has_served:
                has_served = True
                begun_ns = now_ns
                tell_bytes = bytes_in + TELL_BYTES
                end_ns = min(end_ns, begun_ns + PATIENCE_NS)
            if self.reactor.bytes_in >= tell_bytes:
                end_ns = min(end_ns, begun_ns + LOADED_PATIENCE_NS)
        return TELL
