from libc.stdint cimport int64_t

from rmq._fastpath.bytes.syscalls cimport epoll_event
from rmq._fastpath.reactor.reactor cimport Reactor

cdef enum Outcome:
    NOTIFY = 0                  # Python must be notified
    TIME_OVER = 1               # the time is over, without an event
    TRIO_READY = 2              # trio wakes up by itself
    UNUSABLE = 3                # a descriptor is not open

cdef class InnerLoop:
    cdef Reactor reactor
    cdef int trio_fd
    cdef readonly int signal_fd
    cdef object serve_events    # function of the owner, see `serve_here`
    cdef object seconds_left    # returns the seconds that trio may sleep
    cdef object error           # error of `serve_events`, for the owner's task
    cdef int64_t clock_ns       # the reactor's clock minus the monotonic one
    # time at which Python must be notified; 0: it was notified
    cdef int64_t notify_at_ns
    cdef int64_t notify_bytes   # value of bytes_in at which Python is notified earlier
    cdef readonly bint is_broken    # True: trio waits for the descriptors itself
    cdef readonly int64_t waits
    cdef readonly int64_t rounds
    cdef readonly int64_t turns     # number of turns of Python in trio's place

    cdef bint may_serve_here(self) noexcept
    cdef int64_t serve_here(self) noexcept
    cdef int find_ready(
        self, epoll_event *ready, int64_t left_ns, bint has_served
    ) noexcept nogil
    cdef bint waits_for_disk(self) noexcept nogil
    cdef Outcome wait(self, int64_t end_ns) noexcept
    cdef Outcome poll_trio(self) noexcept nogil
    cdef bint remove_trio(self, epoll_event *ready, int *count) noexcept nogil
    cdef void serve(self, const epoll_event *ready, int count) noexcept
