"""Watermark: an offset that only grows, moved by one thread and read by others.

A flush thread advances it after fdatasync, with or without the GIL; the reactor and the
store read it without a lock.  Each subscriber has an eventfd that becomes readable when
the offset has advanced.  In the other direction, a thread that waits for more requests
an advance, and the thread that moves the watermark waits for requests.  Requests before
that wait ends count as one.

Invariant: the value never falls, except by `reset` in recovery, before any reader.
Any thread may call `advance` and `request_advance`; subscribe and close belong to the
thread that owns it, `wait_for_request` to one other.
"""

import os

cimport cython
from libc.stdint cimport int64_t

from rmq._fastpath.log.gate cimport destroy_gate, init_gate, open_gate, pass_gate

cdef extern from *:
    """
    #include <stdint.h>
    #include <unistd.h>
    static inline int64_t rmq_load(const int64_t *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static inline int rmq_raise(int64_t *p, int64_t value) {
        int64_t seen = __atomic_load_n(p, __ATOMIC_ACQUIRE);
        while (seen < value)
            if (__atomic_compare_exchange_n(
                    p, &seen, value, 0, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE))
                return 1;
        return 0;
    }
    /* Between a store and a load of another variable: one of two threads sees both. */
    static inline void rmq_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
    static inline void rmq_signal(int fd) {
        uint64_t one = 1;
        ssize_t done = write(fd, &one, sizeof one);
        (void)done; /* full: it is readable already */
    }
    """
    int64_t rmq_load(const int64_t *p) noexcept nogil
    int rmq_raise(int64_t *p, int64_t value) noexcept nogil
    void rmq_fence() noexcept nogil
    void rmq_signal(int fd) noexcept nogil
    int close(int fd) nogil


@cython.final
cdef class Watermark:
    """An atomic offset with subscribers, and with requests to advance it."""

    def __cinit__(self, int64_t value=0):
        self._value = value
        init_gate(&self._request)

    def __dealloc__(self):
        cdef int i
        destroy_gate(&self._request)
        for i in range(SUBSCRIBER_LIMIT):
            if self._descriptors[i]:
                close(self._descriptors[i] - 1)

    cdef int64_t load(self) noexcept nogil:
        return rmq_load(&self._value)

    cpdef bint advance(self, int64_t value) noexcept nogil:
        """Raise the offset to `value`; False if it was not smaller."""
        cdef int i
        if not rmq_raise(&self._value, value):
            return False
        for i in range(SUBSCRIBER_LIMIT):
            if self._descriptors[i]:
                rmq_signal(self._descriptors[i] - 1)
        if self._minimum is not None:
            rmq_fence()
            self._minimum.update_minimum()
        return True

    cdef void update_minimum(self) noexcept nogil:
        """Advance to the smaller of its two parts."""
        self.advance(min(self._first.load(), self._second.load()))

    cpdef void request_advance(self) noexcept nogil:
        """Let `wait_for_request` return, now or at its next call."""
        open_gate(&self._request)
        if self._first is not None:
            self._first.request_advance()
            self._second.request_advance()

    cdef bint wait(self, int64_t limit_ns) noexcept nogil:
        """Wait for a request; False if there is none for `limit_ns`."""
        return pass_gate(&self._request, limit_ns)

    @staticmethod
    def minimum_of(Watermark first not None, Watermark second not None):
        """Return a watermark that is always the smaller of two.

        It passes requests to both. Create it before either advances; each can be part
        of only one minimum.
        """
        cdef Watermark joint = Watermark(min(first.load(), second.load()))
        if first._minimum is not None or second._minimum is not None or first is second:
            raise ValueError("a watermark belongs to at most one other watermark")
        joint._first, joint._second = first, second
        first._minimum = second._minimum = joint
        return joint

    def wait_for_request(self):
        """Block without the GIL until a request comes; False after `end_wait`."""
        with nogil:
            self.wait(-1)
        if self._is_over:
            self._is_over = False
            return False
        return True

    def end_wait(self):
        """Let `wait_for_request` return False, once."""
        self._is_over = True
        self.request_advance()

    @property
    def value(self):
        """The current offset."""
        return rmq_load(&self._value)

    def reset(self, int64_t value):
        """Set the offset, also to a smaller value; only in recovery, before any reader.
        """
        self._value = value

    def subscribe(self):
        """Return a new eventfd that signals each advance; `unsubscribe` closes it."""
        for i in range(SUBSCRIBER_LIMIT):
            if not self._descriptors[i]:
                descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
                self._descriptors[i] = descriptor + 1
                return descriptor
        raise RuntimeError(f"a watermark has at most {SUBSCRIBER_LIMIT} subscribers")

    def unsubscribe(self, int descriptor):
        """Close a descriptor from `subscribe`."""
        for i in range(SUBSCRIBER_LIMIT):
            if self._descriptors[i] - 1 == descriptor >= 0:
                self._descriptors[i] = 0
                os.close(descriptor)
                return
        raise ValueError(f"descriptor {descriptor} is not a subscriber")
