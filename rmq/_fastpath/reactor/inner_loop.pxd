from libc.stdint cimport int64_t

from rmq._fastpath.bytes.syscalls cimport epoll_event
from rmq._fastpath.reactor.reactor cimport Reactor

cdef enum Outcome:
    NOTIFY = 0                  # Python must be notified
    TIME_OVER = 1               # without any event
    TRIO_READY = 2              # trio wakes up by itself
    UNUSABLE = 3                # a descriptor is not open

cdef class InnerLoop:
    cdef Reactor reactor
    cdef int trio_fd
    cdef readonly int signal_fd
    cdef object serve_events    # of the owner, see `serve_here`
    cdef object seconds_left    # that trio may sleep
    cdef object error           # of `serve_events`, for the owner's task
    cdef int64_t clock_ns       # the reactor's clock minus the monotonic one
    cdef int64_t notify_at_ns   # when Python must be notified; 0: it has been
    cdef int64_t notify_bytes   # bytes_in from which that is sooner
    cdef readonly bint is_broken    # trio waits itself
    cdef readonly int64_t waits
    cdef readonly int64_t rounds
    cdef readonly int64_t turns     # of Python, in trio's place

    cdef bint may_serve_here(self) noexcept
    cdef int64_t serve_here(self) noexcept
    cdef bint waits_for_disk(self) noexcept nogil
    cdef Outcome wait(self, int64_t end_ns) noexcept
    cdef Outcome poll_trio(self) noexcept nogil
    cdef bint remove_trio(self, epoll_event *ready, int *count) noexcept nogil
    cdef void serve(self, const epoll_event *ready, int count) noexcept
