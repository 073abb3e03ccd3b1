"""MappedFile: one file of fixed length, mapped whole and shared.

Layout: `size` bytes; [0, write_position) is written, the rest is zero.
Invariants: flushed_position <= write_position <= allocated <= size for a file being
written. All writes are inside `allocated`, whose blocks exist, and a mapped file is
never shortened. A write without a block, or beyond the end of a file, would cause
SIGBUS. A file that is held is not closed; a flush or allocation holds it.
`create` sets the length of an empty file; it refuses a file with another length.
`LogWriter` writes the files of a log with a ring, through descriptors of its own. Then
a file has only the bytes before *written*, not all bytes before write_position. Crash
contract: a file is empty or has its exact length. After a kill every byte is old, new
or zero. After a power cut all bytes below flushed_position are new. Writers run on one
thread (the trio thread); `flush` and `allocate` may run on a worker at the same time,
one call of each.
"""

import os

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from rmq._fastpath.log.block_digests cimport BLOCK_SIZE, coarse_now_s
from rmq._fastpath.log.extent cimport Extent
from rmq._fastpath.log.watermark cimport Watermark

cdef extern from "io_trace.h":
    void rmq_trace(
        char kind, int fd, const uint8_t *data, int64_t position, int64_t size
    ) noexcept nogil

cdef extern from *:
    """
    #ifndef _GNU_SOURCE
    #define _GNU_SOURCE
    #endif
    #include <errno.h>
    #include <fcntl.h>
    #include <stdint.h>
    #include <stdlib.h>
    #include <sys/mman.h>
    #include <unistd.h>

    static int rmq_pwrite(int fd, const uint8_t *data, int64_t size, int64_t at) {
        while (size > 0) {
            ssize_t done = pwrite(fd, data, size, at);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done ? errno : ENOSPC;
            data += done; size -= done; at += done;
        }
        return 0;
    }
    /* The bytes of [from, to), written once more, so that it has blocks. */
    static int rmq_rewrite(int fd, int64_t from, int64_t to) {
        uint8_t part[16384];
        while (from < to) {
            size_t size = to - from < 16384 ? (size_t)(to - from) : sizeof part;
            ssize_t done = pread(fd, part, size, from);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done ? errno : EIO;
            int error = rmq_pwrite(fd, part, done, from);
            if (error) return error;
            from += done;
        }
        return 0;
    }
    /* Blocks for [from, to), which keeps what it holds. Returns an errno, or 0.
       In parts: writers of the file wait for a call, and tmpfs fills the pages. */
    static int rmq_allocate(int fd, int64_t from, int64_t to) {
        const int64_t part = 1 << 20;
        while (from < to) {
            int64_t size = to - from < part ? to - from : part;
            if (!fallocate(fd, FALLOC_FL_KEEP_SIZE, from, size)) from += size;
            else if (errno == EOPNOTSUPP) return rmq_rewrite(fd, from, to);
            else if (errno != EINTR) return errno;
        }
        return 0;
    }
    static int rmq_sync(int fd) {
        while (fdatasync(fd))
            if (errno != EINTR) return errno;
        return 0;
    }
    /* Zeros over [from, to) without writing them where the file system can. */
    static int rmq_punch(int fd, int64_t from, int64_t to) {
        int mode = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        while (fallocate(fd, mode, from, to - from))
            if (errno != EINTR) return errno;
        return 0;
    }
    /* 1 if every page of the range is in memory, 0 if not, -1 on error */
    static int rmq_resident(uint8_t *base, int64_t position, int64_t size) {
        int64_t page = sysconf(_SC_PAGESIZE);
        int64_t first = position / page * page;
        unsigned char seen[256];
        while (first < position + size) {
            int64_t rest = position + size - first;
            int64_t part = rest < 256 * page ? rest : 256 * page;
            if (mincore(base + first, part, seen)) return -1;
            for (int64_t i = 0; i < (part + page - 1) / page; i++)
                if (!(seen[i] & 1)) return 0;
            first += part;
        }
        return 1;
    }
    /* Read [from, to) to have it in the page cache. Returns an errno, or 0. */
    static int rmq_load(int fd, int64_t from, int64_t to) {
        uint8_t part[65536];
        while (from < to) {
            size_t size = to - from < 65536 ? (size_t)(to - from) : sizeof part;
            ssize_t done = pread(fd, part, size, from);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done ? errno : EIO;
            from += done;
        }
        return 0;
    }
    static void *rmq_map(int fd, int64_t size, int writable) {
        int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
        void *address = mmap(NULL, size, protection, MAP_SHARED, fd, 0);
        return address == MAP_FAILED ? NULL : address;
    }
    """
    int rmq_allocate(int fd, int64_t start, int64_t end) noexcept nogil
    int rmq_punch(int fd, int64_t start, int64_t end) noexcept nogil
    int rmq_pwrite(int fd, const uint8_t *data, int64_t size, int64_t at) noexcept nogil
    int rmq_resident(uint8_t *base, int64_t position, int64_t size) noexcept nogil
    int rmq_load(int fd, int64_t start, int64_t end) noexcept nogil
    void *rmq_map(int fd, int64_t size, int writable) noexcept nogil
    int madvise(void *address, size_t size, int advice) nogil
    int MADV_RANDOM, MADV_NORMAL
    int munmap(void *address, size_t size) nogil
    int rmq_sync(int fd) noexcept nogil
    int SYNC_FILE_RANGE_WRITE
    int sync_file_range(int fd, int64_t start, int64_t size, unsigned int flags) nogil
    int close_descriptor "close"(int fd) nogil


@cython.final
cdef class MappedFile(Extent):
    """One mapped file; positions are bytes from its start."""

    def __cinit__(
        self,
        str path not None,
        int64_t size,
        *,
        int64_t base_offset=0,
        bint create=False,
        bint writable=True,
    ):
        self.path = path
        self.size = size
        self.base_offset = base_offset
        self.writable = writable
        if size <= 0:
            raise ValueError(f"{path}: a mapped file needs a positive size, not {size}")
        flags = os.O_CLOEXEC | (os.O_RDWR if writable else os.O_RDONLY)
        self.fd = os.open(path, flags | (os.O_CREAT if create else 0), 0o644)
        self.is_open = True
        length = os.fstat(self.fd).st_size
        if create and length == 0:
            os.ftruncate(self.fd, size)
            length = size
        if length != size:
            raise ValueError(f"{path} has {length} bytes instead of {size}")
        name = path.encode(errors="surrogateescape")
        rmq_trace(b"o", self.fd, <const uint8_t *>name, 0, len(name))
        self.address = <uint8_t *>rmq_map(self.fd, size, writable)
        if self.address == NULL:
            raise OSError(errno, os.strerror(errno), path)

    def __dealloc__(self):
        if self.address != NULL:
            munmap(self.address, self.size)
        if self.is_open:
            close_descriptor(self.fd)

    @property
    def write_position(self):
        """The end of the written bytes."""
        return self._write_position

    @write_position.setter
    def write_position(self, int64_t position):
        if not 0 <= position <= self.size:
            raise IndexError(f"{self.path}: position {position} outside the file")
        self._write_position = position

    @property
    def is_closed(self):
        """True after `close`."""
        return self.address == NULL

    cdef int check_write(
        self, int64_t position, int64_t size, int64_t limit
    ) except -1:
        self.check_range(position, size, limit)
        if not self.writable:
            raise ValueError(f"{self.path} is open for reading only")
        return 0

    cdef int store(self, int64_t position, const uint8_t *data, int64_t size) except -1:
        self.check_write(position, size, self.allocated)
        rmq_trace(b"w", self.fd, data, position, size)
        memcpy(self.address + position, data, size)
        return 0

    cdef int store_pwrite(
        self, int64_t position, const uint8_t *data, int64_t size
    ) except -1:
        cdef int error
        self.check_write(position, size, self.allocated)
        rmq_trace(b"w", self.fd, data, position, size)
        error = rmq_pwrite(self.fd, data, size, position)
        if error:
            raise OSError(error, os.strerror(error), self.path)
        return 0

    def allocate(self, int64_t end):
        """Allocate the blocks of [0, end); OSError (ENOSPC) if the disk is full."""
        cdef int error
        cdef int64_t start = self.allocated
        self.check_write(0, 0, self.size)
        end = min(end, self.size)
        if end <= start:
            return
        self.holders += 1
        with nogil:
            error = rmq_allocate(self.fd, start, end)
        self.holders -= 1
        if error:
            raise OSError(error, os.strerror(error), self.path)
        self.allocated = end
        rmq_trace(b"a", self.fd, NULL, start, end - start)

    def assume_allocated(self, int64_t end):
        """Assume that [0, end) has blocks, as in a file from an earlier run."""
        self.check_range(0, end, self.size)
        self.allocated = max(self.allocated, end)

    def expect_writes(self, *, bint writing):
        """Advise the kernel if the next accesses are first writes to pages.

        Without this advice a first write to a page reads ahead: with a read-ahead of 8
        MiB it takes 2 ms, not 10 us.
        """
        self.check_range(0, 0, self.size)
        madvise(self.address, self.size, MADV_RANDOM if writing else MADV_NORMAL)

    def append(self, const uint8_t[::1] data not None):
        """Copy `data` to write_position and return the new position."""
        if data.shape[0]:
            self.store(self._write_position, &data[0], data.shape[0])
            self._write_position += data.shape[0]
        return self._write_position

    def write(self, int64_t position, const uint8_t[::1] data not None):
        """Copy `data` to `position`, inside the allocated part."""
        if data.shape[0]:
            self.store(position, &data[0], data.shape[0])

    def pwrite(self, int64_t position, const uint8_t[::1] data not None):
        """Write `data` with a system call, which reports errors; a mapping does not."""
        if data.shape[0]:
            self.store_pwrite(position, &data[0], data.shape[0])

    def zero(self, int64_t start, int64_t end):
        """Fill [start, end) with zeros: bytes that recovery removed must not look like
        data.
        """
        cdef int64_t part
        cdef int error
        cdef bytes zeros = bytes(1 << 16)
        self.check_write(start, end - start, self.size)
        if start == end:
            return
        rmq_trace(b"z", self.fd, NULL, start, end - start)
        error = rmq_punch(self.fd, start, end)
        if error == 0:
            self.allocated = min(self.allocated, start)
            return
        while start < end:
            part = min(end - start, <int64_t>len(zeros))
            error = rmq_pwrite(self.fd, zeros, part, start)
            if error:
                raise OSError(error, os.strerror(error), self.path)
            start += part

    def view(self, int64_t position, int64_t size):
        """Return a read-only memoryview; it keeps the mapping until it is released."""
        self.check_range(position, size, self.size)
        return memoryview(self)[position:position + size]

    def flush(self, Watermark durable=None, int64_t position=-1):
        """Call fdatasync without the GIL (116 us for 4 KiB); return the durable
        position.

        The durable position is `position` or, without an argument, the write position.
        `durable` advances to it at once, even while another thread has the GIL.
        """
        cdef int64_t end = self._write_position if position < 0 else position
        cdef int error
        self.check_range(0, 0, self.size)
        self.holders += 1
        rmq_trace(b"s", self.fd, NULL, 0, 0)
        with nogil:
            error = rmq_sync(self.fd)
            if error == 0:
                rmq_trace(b"e", self.fd, NULL, 0, 0)
                if durable is not None:
                    durable.advance(self.base_offset + end)
        self.holders -= 1
        if error:
            raise OSError(error, os.strerror(error), self.path)
        self.flushed_position = max(self.flushed_position, end)
        return end

    def begin_flush(self, int64_t start, int64_t end):
        """Start writing [start, end) to the disk, without the GIL and without a result.

        Only `flush` returns the durable position, and reports errors.
        """
        self.check_range(start, end - start, self.size)
        self.holders += 1
        with nogil:
            sync_file_range(self.fd, start, end - start, SYNC_FILE_RANGE_WRITE)
        self.holders -= 1

    def assume_flushed(self, int64_t position):
        """Assume that [0, position) is durable: recovery has found it on the disk."""
        self.flushed_position = position

    def is_resident(self, int64_t position, int64_t size):
        """Return True if the whole range is in the page cache (1.2 us for 32 KiB)."""
        self.check_range(position, size, self.size)
        result = rmq_resident(self.address, position, size)
        if result < 0:
            raise OSError(errno, os.strerror(errno), self.path)
        return result == 1

    def load(self, int64_t position, int64_t size):
        """Read a range into the page cache, without the GIL (0.5 ms for 512 KiB)."""
        cdef int error
        self.check_range(position, size, self.size)
        self.holders += 1
        with nogil:
            error = rmq_load(self.fd, position, position + size)
        self.holders -= 1
        if error:
            raise OSError(error, os.strerror(error), self.path)

    cdef bint has_pages(self, int64_t position, int64_t size) noexcept nogil:
        """True if the range of an open file can be read without waiting for a disk."""
        return rmq_resident(self.address, position, size) == 1

    cdef BlockCheck check_blocks(
        self, int64_t position, int64_t size, BlockPages pages
    ) noexcept nogil:
        """Check the sealed blocks of a range that were not checked in the last minute.

        A block that the disk cannot read is bad: a mapped page of it would end the
        process.
        """
        cdef int64_t number, last
        cdef uint32_t now_s
        if self.digests is None or size <= 0:
            return BLOCKS_RIGHT
        number = position // BLOCK_SIZE
        last = min((position + size - 1) // BLOCK_SIZE, self.digests.sealed - 1)
        now_s = coarse_now_s()
        while number <= last:
            if not self.digests.is_fresh(number, now_s):
                if self.digests.is_bad(number):
                    return BLOCKS_BAD
                position = number * BLOCK_SIZE
                size = self.digests.size_of(number)
                if pages != PAGES_IN_MEMORY and not self.has_pages(position, size):
                    if pages == PAGES_UNKNOWN:
                        return BLOCKS_NOT_RESIDENT
                    if rmq_load(self.fd, position, position + size):
                        self.digests.record_bad(number)
                        return BLOCKS_BAD
                if not self.digests.check_block(
                    number, self.address + position, now_s
                ):
                    return BLOCKS_BAD
            number += 1
        return BLOCKS_RIGHT

    cdef bint has_fresh_blocks(self, int64_t position, int64_t size) noexcept nogil:
        """True if all blocks of a range need no check now."""
        cdef int64_t number, last
        cdef uint32_t now_s
        if self.digests is None or size <= 0:
            return True
        number = position // BLOCK_SIZE
        last = min((position + size - 1) // BLOCK_SIZE, self.digests.sealed - 1)
        now_s = coarse_now_s()
        while number <= last:
            if not self.digests.is_fresh(number, now_s):
                return False
            number += 1
        return True

    def find_bad(self, int64_t position, int64_t size):
        """Return the position of a bad block in a range; -1 if all blocks are right.

        It checks as readers do, and reads blocks that only the disk has.
        """
        cdef int64_t begin = position - position % BLOCK_SIZE
        cdef int64_t end = position + size
        self.check_range(position, size, self.size)
        while begin < end:
            if self.check_blocks(begin, 1, PAGES_READ) != BLOCKS_RIGHT:
                return begin
            begin += BLOCK_SIZE
        return -1

    def find_unread(self, int64_t position, int64_t size):
        """Return (position, size) of bytes that a reader needs, and that only the disk
        has. None if all bytes are in memory, or if a block is bad: a reader ends before
        this block. A reader needs whole blocks if they are to be checked.
        """
        cdef int64_t number, last, first_old = -1
        cdef uint32_t now_s
        self.check_range(position, size, self.size)
        if size and self.digests is not None:
            last = (position + size - 1) // BLOCK_SIZE
            now_s = coarse_now_s()
            for number in range(
                position // BLOCK_SIZE, min(last, self.digests.sealed - 1) + 1
            ):
                if self.digests.is_bad(number):
                    return None
                if first_old < 0 and not self.digests.is_fresh(number, now_s):
                    first_old = number
            if first_old >= 0:
                position = min(position, first_old * BLOCK_SIZE)
                size = min((last + 1) * BLOCK_SIZE, self.size) - position
        return None if self.is_resident(position, size) else (position, size)

    def acquire(self):
        """Keep the mapping until `release`."""
        self.check_range(0, 0, self.size)
        self.holders += 1

    def release(self):
        """Undo one `acquire`."""
        assert self.holders > 0, self.path
        self.holders -= 1

    def close(self):
        """Unmap and close; BufferError while the file is held."""
        if self.address == NULL:
            return
        if self.holders:
            raise BufferError(f"{self.path} is held by {self.holders} readers")
        munmap(self.address, self.size)
        self.address = NULL
        self.is_open = False
        os.close(self.fd)
        self.fd = -1

    def unlink(self):
        """Remove the name; the mapping exists until `close`."""
        os.unlink(self.path)
