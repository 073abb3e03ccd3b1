"""TailRing: the last bytes of the log, in a file that is mapped twice, one mapping
after the other.

Known in Java as `TransientStorePool`.
Layout: a head of RING_PAGE bytes, in the machine's order, then `size` bytes: the byte
of log offset o is at o % size.

head    magic "RMQRING1" @0, i64 size @8, i64 generation @16, i64 begin @24,
        i64 written @64

The second mapping follows the first one, so that any range of up to `size` bytes is
contiguous.
Positions, which only grow: *written*: the log's files have all bytes before it;
*appended*: the next append begins here.
Invariants: an append has at most `margin` bytes; bytes in [written, appended) are never
overwritten; written >= appended - size + 2 * margin.  So a record that begins before
`floor` is whole in its file, even while the next append overwrites it.
Crash contract: after a kill every byte before *appended* is in the ring, and *written*
is right. After a power cut each page is old, new or lost. A reader of an earlier run's
ring checks every record, and refuses a ring with another generation. One thread appends
(the trio thread); at most one thread at a time moves *written*.
"""

import os

cimport cython
from libc.errno cimport errno
from libc.stdint cimport int64_t, uint8_t
from libc.stdlib cimport malloc
from libc.string cimport memcmp, memcpy, memset

from rmq._fastpath.log.extent cimport Extent, new_extent

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
    #include <sys/mman.h>
    #include <unistd.h>
    #ifndef MADV_POPULATE_WRITE
    #define MADV_POPULATE_WRITE 23
    #endif

    static inline int64_t rmq_ring_load(const int64_t *p) {
        return __atomic_load_n(p, __ATOMIC_ACQUIRE);
    }
    static inline void rmq_ring_store(int64_t *p, int64_t value) {
        __atomic_store_n(p, value, __ATOMIC_RELEASE);
    }
    /* Blocks for the whole file: a shared mapping without them ends in SIGBUS. */
    static int rmq_ring_allocate(int fd, int64_t size) {
        static const uint8_t zeros[65536];
        while (fallocate(fd, 0, 0, size)) {
            if (errno == EINTR) continue;
            if (errno != EOPNOTSUPP) return errno;
            for (int64_t at = 0; at < size; at += sizeof zeros)
                if (pwrite(fd, zeros, sizeof zeros, at) != sizeof zeros)
                    return errno ? errno : ENOSPC;
            break;
        }
        return 0;
    }
    static uint8_t *rmq_ring_map_head(int fd, int64_t size) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        return p == MAP_FAILED ? NULL : (uint8_t *)p;
    }
    static uint8_t *rmq_ring_map_twice(int fd, int64_t at, int64_t size) {
        int both = PROT_READ | PROT_WRITE, how = MAP_SHARED | MAP_FIXED;
        uint8_t *p = mmap(NULL, 2 * size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS,
                          -1, 0);
        if (p == MAP_FAILED) return NULL;
        if (mmap(p, size, both, how, fd, at) == MAP_FAILED
            || mmap(p + size, size, both, how, fd, at) == MAP_FAILED) {
            int error = errno;
            munmap(p, 2 * size);
            errno = error;
            return NULL;
        }
        return p;
    }
    static inline void rmq_ring_populate(uint8_t *p, int64_t size) {
        madvise(p, size, MADV_POPULATE_WRITE);  /* an old kernel does it page by page */
    }
    """
    int64_t rmq_ring_load(const int64_t *p) noexcept nogil
    void rmq_ring_store(int64_t *p, int64_t value) noexcept nogil
    int rmq_ring_allocate(int fd, int64_t size) noexcept nogil
    uint8_t *rmq_ring_map_head(int fd, int64_t size) noexcept nogil
    uint8_t *rmq_ring_map_twice(int fd, int64_t at, int64_t size) noexcept nogil
    void rmq_ring_populate(uint8_t *p, int64_t size) noexcept nogil
    int munmap(void *address, size_t size) nogil
    int close_descriptor "close"(int fd) nogil

cdef const char *MAGIC = "RMQRING1"

cdef enum:
    MAGIC_SIZE = 8
    SIZE_AT = 8
    GENERATION_AT = 16
    BEGIN_AT = 24
    WRITTEN_AT = 64             # a cache line of its own: another thread moves it
    PREPARED_SIZE = 1 << 20     # bytes whose pages are made ready by one call
    LEAD_SIZE = 4 << 20         # bytes that are ready ahead of the end
    LEAD_CALLS = 4              # calls whose bytes are ready ahead, too


@cython.final
cdef class TailRing:
    """The ring of one run, or the ring that an earlier run left."""

    def __cinit__(
        self,
        str path not None,
        int64_t generation,
        *,
        int64_t size=0,
        int64_t begin=0,
    ):
        """`size`: create the ring of a run whose log continues at `begin`.

        Without `size`: open the ring of the run with this generation; ValueError if the
        file is another ring, OSError if there is no file.
        """
        self.path = path
        self.fd = -1
        if size:
            self.create_file(size, generation, begin)
        else:
            self.open_existing(generation)
        self.margin = self.size // RING_PARTS
        self._end = self.prepared_at = self.begin

    def __dealloc__(self):
        if self.head != NULL:
            munmap(self.head, RING_PAGE)
        if self.address != NULL:
            munmap(self.address, 2 * self.size)
        if self.fd >= 0:
            close_descriptor(self.fd)

    cdef int create_file(
        self, int64_t size, int64_t generation, int64_t begin
    ) except -1:
        """Create the file with all its blocks."""
        cdef int error
        if size <= 0 or size % RING_PAGE:
            raise ValueError(
                f"{self.path}: {size} bytes are not a multiple of the page size"
            )
        self.fd = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
        )
        name = self.path.encode(errors="surrogateescape")
        rmq_trace(b"o", self.fd, <const uint8_t *>name, 0, len(name))
        error = rmq_ring_allocate(self.fd, RING_PAGE + size)
        if error:
            os.unlink(self.path)
            raise OSError(error, os.strerror(error), self.path)
        self.map_file(size)
        self.begin = begin
        (<int64_t *>(self.head + SIZE_AT))[0] = size
        (<int64_t *>(self.head + GENERATION_AT))[0] = generation
        (<int64_t *>(self.head + BEGIN_AT))[0] = begin
        (<int64_t *>(self.head + WRITTEN_AT))[0] = begin
        memcpy(self.head, MAGIC, MAGIC_SIZE)
        rmq_trace(b"w", self.fd, self.head, 0, WRITTEN_AT + 8)
        return 0

    cdef int open_existing(self, int64_t generation) except -1:
        """Open the file of an earlier run."""
        self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        length = os.fstat(self.fd).st_size
        size = length - RING_PAGE
        if size <= 0 or size % RING_PAGE:
            raise ValueError(f"{self.path} has {length} bytes and is no ring")
        self.map_file(size)
        if memcmp(self.head, MAGIC, MAGIC_SIZE) or (
            (<int64_t *>(self.head + SIZE_AT))[0] != self.size
        ):
            raise ValueError(f"{self.path} is no ring")
        if (<int64_t *>(self.head + GENERATION_AT))[0] != generation:
            raise ValueError(f"{self.path} is not of the last run")
        self.begin = (<int64_t *>(self.head + BEGIN_AT))[0]
        return 0

    cdef int map_file(self, int64_t size) except -1:
        """Map head and ring."""
        self.head = rmq_ring_map_head(self.fd, RING_PAGE)
        if self.head != NULL:
            self.size = size
            self.address = rmq_ring_map_twice(self.fd, RING_PAGE, size)
        if self.address == NULL:
            raise OSError(errno, os.strerror(errno), self.path)
        return 0

    # -- offsets

    cdef int64_t load_appended(self) noexcept nogil:
        return rmq_ring_load(&self._end)

    cdef int64_t load_written(self) noexcept nogil:
        return rmq_ring_load(<int64_t *>(self.head + WRITTEN_AT))

    cdef void store_written(self, int64_t offset) noexcept nogil:
        rmq_ring_store(<int64_t *>(self.head + WRITTEN_AT), offset)
        rmq_trace(b"w", self.fd, self.head + WRITTEN_AT, WRITTEN_AT, 8)

    cdef int64_t load_floor(self) noexcept nogil:
        """Offset from which on records are in the ring; earlier records are in files.
        """
        return max(self.begin, self._end - self.size)

    cdef int64_t free_bytes(self) noexcept nogil:
        """Return how many bytes may be appended now; it may be below 0."""
        return self.size - 2 * self.margin - (self._end - self.load_written())

    @property
    def appended_offset(self):
        """*appended*: the next append begins here."""
        return self.load_appended()

    @property
    def written_offset(self):
        """*written*: the files of the log have all bytes before it."""
        return self.load_written()

    @property
    def floor_offset(self):
        """Offset from which on records are in the ring."""
        return self.load_floor()

    @property
    def free_size(self):
        """Number of bytes that may be appended now."""
        return max(<int64_t>0, self.free_bytes())

    # -- the thread that appends

    cdef uint8_t *address_of(self, int64_t offset) noexcept nogil:
        return self.address + offset % self.size

    cdef void append(self, const uint8_t *data, int64_t size) noexcept nogil:
        """Copy bytes for which there is room, then advance *appended*."""
        memcpy(self.address_of(self._end), data, size)
        self.advance_end(size)

    cdef void append_zeros(self, int64_t size) noexcept nogil:
        """Append zeros, for the unused end of a file."""
        memset(self.address_of(self._end), 0, size)
        self.advance_end(size)

    cdef void advance_end(self, int64_t size) noexcept nogil:
        cdef int64_t position = self._end % self.size
        cdef int64_t first = min(size, self.size - position)
        rmq_trace(
            b"w", self.fd, self.address_of(self._end), RING_PAGE + position, first
        )
        if first < size:
            rmq_trace(b"w", self.fd, self.address, RING_PAGE, size - first)
        rmq_ring_store(&self._end, self._end + size)

    def add(self, const uint8_t[::1] data not None):
        """Append bytes; ValueError without room for them."""
        if data.shape[0] > min(self.margin, self.free_bytes()):
            raise ValueError(f"{self.path} has no room for {data.shape[0]} bytes")
        if data.shape[0]:
            self.append(&data[0], data.shape[0])

    # -- the thread that writes

    def mark_written(self, int64_t offset):
        """Set *written*: the files have all bytes before `offset`."""
        if not self.load_written() <= offset <= self.load_appended():
            raise ValueError(
                f"{offset} is not in {self.load_written()}..{self.load_appended()}"
            )
        self.store_written(offset)

    def prepare_pages(self):
        """Populate pages ahead of *appended*; a worker thread calls it periodically.

        A first write to a page updates the file's time, and may wait for the journal.
        This affects new pages, and pages that the kernel has written to the disk since
        the last lap.
        """
        cdef int64_t end = self.load_appended()
        cdef int64_t lead = LEAD_SIZE + LEAD_CALLS * (end - self.prepared_at)
        cdef int64_t stop = end + min(lead, max(<int64_t>0, self.free_bytes()))
        cdef int64_t start, part
        self.prepared_at = end
        with nogil:
            while end < stop:
                start = end % self.size
                start -= start % RING_BLOCK
                part = min(<int64_t>PREPARED_SIZE, self.size - start)
                rmq_ring_populate(self.address + start, part)
                end += part - end % RING_BLOCK

    # -- readers

    cdef Extent view(self, int64_t offset, int64_t end):
        """Return a view of [offset, end), valid until the next append on the same
        thread.
        """
        return new_extent(
            self.path, self.address_of(offset), offset, end - offset, self
        )

    cdef int64_t load_safe_floor(self) noexcept nogil:
        """`floor` for other threads: a concurrent append does not touch these bytes."""
        return max(self.begin, self.load_appended() - self.size + self.margin)

    cdef Extent copy(self, int64_t offset, int64_t end):
        """Copy [offset, end) for another thread; None if it may have been overwritten.
        """
        cdef int64_t size = end - offset
        cdef uint8_t *memory = <uint8_t *>malloc(size)
        if memory == NULL:
            raise MemoryError
        extent = new_extent(self.path, memory, offset, size, None)
        with nogil:
            memcpy(memory, self.address_of(offset), size)
        return extent if offset >= self.load_safe_floor() else None

    def read_leftover(self, int64_t offset, int64_t limit):
        """Return a view of at most `limit` unchecked bytes of an earlier run at
        `offset`.
        """
        if offset < self.begin:
            return None
        return self.view(offset, offset + min(limit, self.size))

    def read(self, int64_t offset, int64_t size):
        """Copy [offset, offset + size), which must be in the ring."""
        if size < 0 or not (
            self.load_floor() <= offset <= self.load_appended() - size
        ):
            raise IndexError(
                f"{self.path}: {size} bytes at {offset} reach outside "
                f"{self.load_floor()}..{self.load_appended()}"
            )
        return self.address_of(offset)[:size]
