"""Replies that wait until their message is durable, in the order of watermarks.

Each is kept with the reply that is sent instead when it has waited too long; together
they have at most HELD_LIMIT bytes.  Watermarks mostly come in order: a new reply finds
its place from the end.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef enum:
    HELD_LIMIT = 256 * 1024 * 1024      # bytes


@cython.final
cdef class HeldReplies:
    """Replies that wait for the disk, in the order of what they wait for."""

    def __dealloc__(self):
        while self.head != NULL:
            self.forget(self.head)

    cdef bint has_room(self, int64_t size) noexcept nogil:
        return self.size + size <= HELD_LIMIT

    cdef bint keep(
        self,
        uint64_t token,
        const uint8_t *data,
        int64_t size,
        const uint8_t *timeout_data,
        int64_t timeout_size,
        int64_t watermark,
        int64_t deadline_ms,
        int32_t code,
        int64_t begun_ns,
    ) noexcept nogil:
        """Copy both replies; False if too much is held already."""
        cdef Held *held
        if not self.has_room(size + timeout_size):
            return False
        held = <Held *>malloc(sizeof(Held))
        if held == NULL:
            return False
        held.data = <uint8_t *>malloc(size + timeout_size + 1)
        if held.data == NULL:
            free(held)
            return False
        memcpy(held.data, data, size)
        if timeout_size:
            memcpy(held.data + size, timeout_data, timeout_size)
        held.token = token
        held.watermark = watermark
        held.deadline_ms = deadline_ms
        held.size = size
        held.timeout_size = timeout_size
        held.code = code
        held.begun_ns = begun_ns
        self.insert(held)
        return True

    cdef void insert(self, Held *held) noexcept nogil:
        """Link it behind the last that waits for no more than it does."""
        cdef Held *before = self.tail
        while before != NULL and before.watermark > held.watermark:
            before = before.previous
        held.previous = before
        held.next = self.head if before == NULL else before.next
        if held.next != NULL:
            held.next.previous = held
        else:
            self.tail = held
        if before != NULL:
            before.next = held
        else:
            self.head = held
        self.count += 1
        self.size += held.size + held.timeout_size

    cdef void forget(self, Held *held) noexcept nogil:
        """Unlink one and free it."""
        if held.previous != NULL:
            held.previous.next = held.next
        else:
            self.head = held.next
        if held.next != NULL:
            held.next.previous = held.previous
        else:
            self.tail = held.previous
        self.count -= 1
        self.size -= held.size + held.timeout_size
        free(held.data)
        free(held)
