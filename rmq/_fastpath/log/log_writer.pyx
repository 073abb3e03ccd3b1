"""LogWriter: moves the log from the tail ring to its files.

Under ASYNC_FLUSH it writes when `wake_size` bytes wait, or when the oldest byte has
waited for the interval. It bypasses the page cache (O_DIRECT) unless the ring is more
than half full. Then the page cache absorbs the surplus.
Under SYNC_FLUSH it writes everything on each request (O_DIRECT, O_DSYNC).
A direct write begins with the block in which the last one ended, and ends with a block
that is padded with zeros. If the file system refuses direct writes, or blocks do not
fit into the files, every write is buffered, and under SYNC_FLUSH fdatasync follows it.
Invariants: bytes are written in order; *written* and *durable* advance after the write
has returned, never before; after a failed write there is no further write. `run` is the
loop of one thread, which takes the GIL only between two files; `write_out` writes on
any other thread.
"""

import os

cimport cython
from libc.errno cimport EINVAL, EIO
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memcpy, memset

from rmq._fastpath.bytes.syscalls cimport eventfd_wake, monotonic_ns
from rmq._fastpath.log.flush_times cimport FlushTimes
from rmq._fastpath.log.mapped_file cimport MappedFile
from rmq._fastpath.log.tail_ring cimport RING_BLOCK, TailRing
from rmq._fastpath.log.watermark cimport Watermark

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t *mutex, void *attributes)
    int pthread_mutex_destroy(pthread_mutex_t *mutex)
    int pthread_mutex_lock(pthread_mutex_t *mutex)
    int pthread_mutex_unlock(pthread_mutex_t *mutex)

cdef extern from "<stdlib.h>" nogil:
    int posix_memalign(void **memory, size_t alignment, size_t size)

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
    #include <stdint.h>
    #include <sys/uio.h>
    #include <unistd.h>

    /* Write two parts, one after the other; an errno, or 0. */
    static int rmq_write_parts(
        int fd, uint8_t *first, int64_t size, uint8_t *second, int64_t rest, int64_t at
    ) {
        while (size + rest > 0) {
            struct iovec parts[2] = {{first, size}, {second, rest}};
            ssize_t done = size == 0 ? pwritev(fd, parts + 1, 1, at)
                                     : pwritev(fd, parts, rest ? 2 : 1, at);
            if (done < 0 && errno == EINTR) continue;
            if (done <= 0) return done ? errno : ENOSPC;
            at += done;
            if (done >= size) {
                done -= size;
                size = 0;
                second += done; rest -= done;
            } else {
                first += done; size -= done;
            }
        }
        return 0;
    }
    static int rmq_sync_data(int fd) {
        while (fdatasync(fd))
            if (errno != EINTR) return errno;
        return 0;
    }
    static inline int rmq_exchange(int *p, int value) {
        if (__atomic_load_n(p, __ATOMIC_ACQUIRE) == value) return value;
        return __atomic_exchange_n(p, value, __ATOMIC_ACQ_REL);
    }
    """
    int rmq_write_parts(
        int fd, uint8_t *first, int64_t size, uint8_t *second, int64_t rest, int64_t at
    ) noexcept nogil
    int rmq_sync_data(int fd) noexcept nogil
    int rmq_exchange(int *p, int value) noexcept nogil

cdef enum:
    PART_SIZE = 1 << 20         # bytes per write: 0.35 us of CPU a 4 KiB, 2 us a 64 KiB


@cython.final
cdef class LogWriter:
    """Writes the files of a log that has a ring."""

    def __cinit__(
        self,
        TailRing ring not None,
        Watermark durable not None,
        FlushTimes times not None,
        find_file not None,
        on_buffered not None,
        *,
        bint is_durable,
        bint is_direct,
        int64_t interval_ms,
    ):
        """`find_file` returns the file of an offset.

        `on_buffered` is called when writes become buffered.

        If writes are durable, the writer advances `durable` and adds the duration of
        each write to `times`. Requests to `durable` wake the thread.
        """
        self.fd = self.wake_fd = -1
        self.ring = ring
        self.durable = durable
        self.times = times
        self.find_file = find_file
        self.on_buffered = on_buffered
        self.is_durable = is_durable
        self.is_direct = is_direct
        self.interval_ns = interval_ms * 1_000_000
        self.wake_size = min(<int64_t>PART_SIZE, ring.margin)
        pthread_mutex_init(&self.lock, NULL)
        if posix_memalign(<void **>&self.last_block, RING_BLOCK, RING_BLOCK):
            raise MemoryError

    def __dealloc__(self):
        pthread_mutex_destroy(&self.lock)
        free(self.last_block)

    # -- the thread that appends

    cdef void wake_for_append(self, int64_t pending) noexcept nogil:
        """Wake the writer after an append; `pending` bytes waited before it."""
        if self.is_durable or pending == 0 or self.pending() >= self.wake_size:
            self.durable.request_advance()

    cdef void wake_reactor_later(self) noexcept nogil:
        """Wake the reactor after the next write."""
        rmq_exchange(&self.is_room_awaited, 1)
        self.durable.request_advance()

    def wake_when_written(self, int descriptor):
        """Signal this eventfd when waiting senders may retry; -1 stops that."""
        self.wake_fd = descriptor

    # -- the thread that writes

    cdef int64_t pending(self) noexcept nogil:
        return self.ring.load_appended() - self.ring.load_written()

    def run(self):
        """Write until `durable.end_wait`; OSError if the log cannot be written."""
        cdef int error = 0
        with nogil:
            while error == 0 and not self.durable._is_over:
                if self.pending() == 0:
                    self.durable.wait(-1)
                    continue
                if not self.is_durable and self.pending() < self.wake_size:
                    self.durable.wait(self.interval_ns)
                error = self.write_until(self.ring.load_appended())
        self.durable._is_over = False
        self.raise_error(error)

    def write_out(self):
        """Write all that was appended before the call and return the written offset."""
        cdef int64_t end = self.ring.load_appended()
        cdef int error
        with nogil:
            error = self.write_until(end)
        self.raise_error(error)
        return self.ring.load_written()

    cdef int raise_error(self, int error) except -1:
        """Raise the OSError of a failed write."""
        if error:
            path = self.ring.path if self.file is None else self.file.path
            raise OSError(error, os.strerror(error), path)
        return 0

    cdef int write_until(self, int64_t end) noexcept nogil:
        """Write up to `end`, the end of a record, part by part; return an errno or 0.
        After that the files have only whole records. Other programs may take a part of
        a record for a complete record, because no checksum covers the properties.
        """
        cdef int error = 0
        cdef int64_t stop, start
        pthread_mutex_lock(&self.lock)
        while error == 0:
            start = self.ring.load_written()
            if start >= end:
                break
            if not self.file_begin <= start < self.file_end:
                error = self.next_file(start)
                continue
            stop = min(end, self.file_end)
            stop = min(stop, start - start % RING_BLOCK + PART_SIZE)
            error = self.write_part(stop)
        pthread_mutex_unlock(&self.lock)
        return error

    cdef int write_part(self, int64_t stop) noexcept nogil:
        """Write [written, stop), which is in one file; then advance the watermarks."""
        cdef int64_t start = self.ring.load_written()
        cdef int64_t began_ns = monotonic_ns() if self.is_durable else 0
        cdef int error
        if self.is_direct and (
            self.is_durable or 2 * self.pending() <= self.ring.size
        ):
            error = self.write_direct(start - start % RING_BLOCK, stop)
        else:
            error = self.write_buffered(start, stop)
        if error:
            return error
        self.writes += 1
        self.bytes_written += stop - start
        self.ring.store_written(stop)
        if self.is_durable:
            self.times.add(monotonic_ns() - began_ns)
            self.durable.advance(stop)
        if self.wake_fd >= 0 and rmq_exchange(&self.is_room_awaited, 0):
            eventfd_wake(self.wake_fd)
        return 0

    cdef int write_direct(self, int64_t start, int64_t stop) noexcept nogil:
        """Write whole blocks by O_DIRECT, the last one padded with zeros."""
        cdef int64_t whole = stop - stop % RING_BLOCK
        cdef int64_t rest = 0
        cdef int64_t position = start - self.file_begin
        cdef int error
        rmq_trace(
            b"d", self.file.fd, self.ring.address_of(start), position, whole - start
        )
        if whole < stop:
            rest = RING_BLOCK
            memcpy(self.last_block, self.ring.address_of(whole), stop - whole)
            memset(self.last_block + (stop - whole), 0, whole + rest - stop)
            rmq_trace(
                b"d", self.file.fd, self.last_block, whole - self.file_begin, rest
            )
        if self.is_durable:
            rmq_trace(b"s", self.file.fd, NULL, 0, 0)
        error = rmq_write_parts(
            self.fd, self.ring.address_of(start), whole - start,
            self.last_block, rest, position,
        )
        if error == EINVAL:
            return self.fall_back_to_buffered(stop)
        if error == 0 and self.is_durable:
            rmq_trace(b"e", self.file.fd, NULL, 0, 0)
        return error

    cdef int write_buffered(self, int64_t start, int64_t stop) noexcept nogil:
        """Write through the page cache."""
        cdef int64_t position = start - self.file_begin
        cdef int error
        rmq_trace(
            b"w", self.file.fd, self.ring.address_of(start), position, stop - start
        )
        self.buffered_writes += 1
        error = rmq_write_parts(
            self.file.fd, self.ring.address_of(start), stop - start, NULL, 0, position
        )
        if error or not self.is_durable:
            return error
        rmq_trace(b"s", self.file.fd, NULL, 0, 0)
        error = rmq_sync_data(self.file.fd)
        if error == 0:
            rmq_trace(b"e", self.file.fd, NULL, 0, 0)
        return error

    # -- files, with the GIL

    cdef int next_file(self, int64_t offset) noexcept with gil:
        """Switch to the file of `offset`; return an errno or 0."""
        try:
            self.close_file()
            self.open_file(offset)
        except OSError as error:
            return error.errno or EIO
        return 0

    def open_file(self, int64_t offset):
        """Write to the file of `offset` from now on."""
        cdef MappedFile file = self.find_file(offset)
        file.acquire()
        self.file = file
        if self.is_direct:
            flags = os.O_WRONLY | os.O_CLOEXEC | os.O_DIRECT
            try:
                self.fd = os.open(
                    file.path, flags | (os.O_DSYNC if self.is_durable else 0)
                )
            except OSError as error:
                if error.errno != EINVAL:
                    raise
                self.disable_direct()
        self.file_begin = file.base_offset
        self.file_end = file.base_offset + file.size

    def close_file(self):
        """Release the file."""
        if self.file is None:
            return
        if self.is_durable and self.ring.load_written() >= self.file_end:
            self.file.assume_flushed(self.file.size)
        self.file.release()
        self.file = None
        self.file_begin = self.file_end = 0
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def disable_direct(self):
        """Write through the page cache from now on."""
        self.is_direct = False
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
        self.on_buffered()

    cdef int fall_back_to_buffered(self, int64_t stop) noexcept with gil:
        """Write up to `stop` through the page cache, and all later bytes, too."""
        self.disable_direct()
        with nogil:
            return self.write_buffered(self.ring.load_written(), stop)
