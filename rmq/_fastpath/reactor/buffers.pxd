"""Inboxes and outboxes of connections, and the memory that all of them share.

    data        data + start        data + end        data + capacity
     | already used   | bytes that wait    | room             |

A buffer without bytes has no memory: `data` is NULL. Capacities change in
`resize_buffer` and `release_buffer` only, so that `MemoryBudget.used` is their sum.
"""

from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memmove

cdef struct MemoryBudget:
    int64_t used                # sum of the capacities of all buffers
    int64_t limit

cdef struct Buffer:
    uint8_t *data
    int64_t capacity
    int64_t start               # position of the bytes that wait
    int64_t end


cdef inline int64_t pending_size(const Buffer *buffer) noexcept nogil:
    """Return the number of bytes that wait in the buffer."""
    return buffer.end - buffer.start


cdef inline bint resize_buffer(
    Buffer *buffer, int64_t capacity, MemoryBudget *budget
) noexcept nogil:
    """Change the capacity; without memory return False and change nothing."""
    cdef void *moved = realloc(buffer.data, capacity)
    if moved == NULL:
        return False
    budget.used += capacity - buffer.capacity
    buffer.data = <uint8_t *>moved
    buffer.capacity = capacity
    return True


cdef inline void release_buffer(Buffer *buffer, MemoryBudget *budget) noexcept nogil:
    """Free the buffer with its bytes."""
    budget.used -= buffer.capacity
    free(buffer.data)
    buffer.data = NULL
    buffer.capacity = buffer.start = buffer.end = 0


cdef inline void compact_buffer(Buffer *buffer) noexcept nogil:
    """Move the bytes that wait to the start."""
    if buffer.start:
        buffer.end -= buffer.start
        memmove(buffer.data, buffer.data + buffer.start, buffer.end)
        buffer.start = 0
