"""BlockDigests: the CRC-32 of each block of one log file, and when it was checked.

A block has 64 KiB; the last one may be shorter.  A block is *sealed* when the log has
passed it: it has its digest then, and its bytes do not change any more.  Readers check
the blocks of an answer, at most once in a minute each.  So later readers pay for a
comparison of two numbers.  A block with other bytes stays *bad* until it is right again
(`check_bytes`).
Blocks are sealed in order, by one thread at a time; any thread checks.
`rmq/store/log_digests.py` has the files.  bench/micro/bench_block_digests.py times it.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cdef extern from "crc32.h" nogil:
    void rmq_crc_init()
    uint32_t rmq_crc32(const uint8_t *data, size_t size, int allow_clmul)

cdef extern from *:
    """
    #include <stdint.h>
    #include <time.h>
    static uint32_t rmq_coarse_s(void) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
        return (uint32_t)now.tv_sec + 100;  /* so "never" and BAD are never fresh */
    }
    """
    uint32_t rmq_coarse_s() noexcept nogil

cdef enum:
    CHECKED_S = 60
    BAD = 0xFFFFFFFF

BLOCK_BYTES = BLOCK_SIZE

rmq_crc_init()


cdef uint32_t coarse_now_s() noexcept nogil:
    """Return the seconds of a clock that takes 5 ns to read; 100 or more."""
    return rmq_coarse_s()


@cython.final
cdef class BlockDigests:
    """The digests of one file."""

    def __cinit__(self, int64_t file_size, bytes digests not None=b""):
        """`digests` are the digests of the first blocks, in the form of `to_bytes`."""
        self.file_size = file_size
        self.count = (file_size + BLOCK_SIZE - 1) // BLOCK_SIZE
        self.sealed = len(digests) // 4
        if file_size <= 0 or self.sealed > self.count:
            raise ValueError(f"{self.sealed} digests of {file_size} bytes")
        self.digests = <uint32_t *>calloc(self.count, 4)
        self.checked_s = <uint32_t *>calloc(self.count, 4)
        if self.digests == NULL or self.checked_s == NULL:
            raise MemoryError
        memcpy(self.digests, <const uint8_t *>digests, self.sealed * 4)

    def __dealloc__(self):
        free(self.digests)
        free(self.checked_s)

    cdef int64_t size_of(self, int64_t number) noexcept nogil:
        return min(<int64_t>BLOCK_SIZE, self.file_size - number * BLOCK_SIZE)

    cdef bint is_fresh(self, int64_t number, uint32_t now_s) noexcept nogil:
        """True if a block was right in the last minute."""
        return now_s - self.checked_s[number] < CHECKED_S

    cdef bint is_bad(self, int64_t number) noexcept nogil:
        return self.checked_s[number] == BAD

    cdef void record_bad(self, int64_t number) noexcept nogil:
        self.checked_s[number] = <uint32_t>BAD

    cdef bint check_block(
        self, int64_t number, const uint8_t *data, uint32_t now_s
    ) noexcept nogil:
        """Compare the bytes of a sealed block with its digest, and record the result.
        """
        if rmq_crc32(data, self.size_of(number), 1) == self.digests[number]:
            self.checked_s[number] = now_s
            return True
        self.record_bad(number)
        return False

    cdef int check_data(self, int64_t number, int64_t size) except -1:
        if not 0 <= number < self.count or size != self.size_of(number):
            raise ValueError(f"{size} bytes for block {number} of {self.count}")
        return 0

    def seal_next(self, const uint8_t[::1] data not None):
        """Seal the next block, which has this data."""
        cdef uint32_t digest
        self.check_data(self.sealed, data.shape[0])
        with nogil:
            digest = rmq_crc32(&data[0], data.shape[0], 1)
        self.digests[self.sealed] = digest
        self.checked_s[self.sealed] = coarse_now_s()
        self.sealed += 1

    def check_bytes(self, int64_t number, const uint8_t[::1] data not None):
        """Return whether a block has its sealed bytes, and record the result."""
        cdef bint is_right
        self.check_data(number, data.shape[0])
        if number >= self.sealed:
            raise ValueError(f"block {number} has no digest")
        with nogil:
            is_right = self.check_block(number, &data[0], coarse_now_s())
        return is_right

    def fits(self, int64_t number, const uint8_t[::1] data not None):
        """Return whether these are the sealed bytes of a block; records nothing."""
        cdef uint32_t digest
        self.check_data(number, data.shape[0])
        with nogil:
            digest = rmq_crc32(&data[0], data.shape[0], 1)
        return number < self.sealed and digest == self.digests[number]

    def forget_checks(self):
        """Let readers check each block again."""
        memset(self.checked_s, 0, self.count * 4)

    def truncate(self, int64_t size):
        """Forget the blocks after `size` bytes of the file."""
        self.sealed = min(self.sealed, max(<int64_t>0, size // BLOCK_SIZE))

    def to_bytes(self):
        """Return the digests, 4 bytes each in the order of this machine."""
        return PyBytes_FromStringAndSize(<char *>self.digests, self.sealed * 4)
