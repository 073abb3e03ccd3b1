"""Extent: bytes of a log or queue in memory, from `base_offset` on.

Examples are a mapped file, and a part of the tail ring, lent or copied.  Positions are
bytes from its start: the byte at position p belongs to offset base_offset + p.
Invariant: bytes that are held (`holders`), or read on the thread that owns the store,
are neither unmapped nor overwritten.
"""

from cpython.buffer cimport PyBuffer_FillInfo
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free


cdef class Extent:
    """A range of bytes in memory; only compiled code creates one."""

    def __dealloc__(self):
        if self.owns_memory:
            free(self.address)

    cdef int check_range(self, int64_t position, int64_t size, int64_t limit) except -1:
        if self.address == NULL:
            raise ValueError(f"{self.path} is closed")
        if position < 0 or size < 0 or position > limit - size:
            raise IndexError(
                f"{self.path}: {size} bytes at {position} reach outside 0..{limit}"
            )
        return 0

    def read(self, int64_t position, int64_t size):
        """Return a copy of `size` bytes."""
        self.check_range(position, size, self.size)
        return PyBytes_FromStringAndSize(<char *>self.address + position, size)

    def __getbuffer__(self, Py_buffer *view, int flags):
        if self.address == NULL:
            raise BufferError(f"{self.path} is closed")
        PyBuffer_FillInfo(view, self, self.address, self.size, 1, flags)
        self.holders += 1

    def __releasebuffer__(self, Py_buffer *view):
        self.holders -= 1


cdef Extent new_extent(
    str path, uint8_t *address, int64_t base_offset, int64_t size, object owner
):
    """Wrap bytes of `owner`; without an owner the bytes are from malloc, and the extent
    frees them.
    """
    cdef Extent extent = Extent.__new__(Extent)
    extent.path = path
    extent.address = address
    extent.base_offset = base_offset
    extent.size = size
    extent.owns_memory = owner is None
    extent.owner = owner
    return extent
