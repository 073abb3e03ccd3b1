"""Claim: how far this log was written, durable and confirmed; stored before answers
leave.

Layout of a slot, big-endian: magic "RMQCLM01".  Five i64 from byte 8 on: number of the
store, start of the log, written, durable, confirmed.  Two u32 @48: CRCs of the last two
checkpoints.  16 bytes boot id @56.  u32 CRC-32 of bytes 0 to 71 @72.
Two slots are stored in turn, each in its half of the page.  A kill in the middle of a
store, or a torn page, leaves the other slot.
The page is shared memory: `kill -9` keeps it.  `rmq/store/claim.py` writes it to the
disk.  Most of a store is the checksum; bench/micro/bench_claim.py times it.
The reactor stores without the GIL, other threads with it; a spin lock orders stores.
"""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcmp, memcpy, memset

from rmq._fastpath.bytes.checksum cimport body_crc_of
from rmq._fastpath.bytes.endian cimport get32, get64, put32, put64
from rmq._fastpath.log.watermark cimport Watermark

cdef extern from "io_trace.h":
    void rmq_trace(
        char kind, int fd, const uint8_t *data, int64_t position, int64_t size
    ) noexcept nogil

cdef extern from *:
    """
    #include <sched.h>
    static inline void rmq_lock_slot(char *lock) {
        while (__atomic_test_and_set(lock, __ATOMIC_ACQUIRE)) sched_yield();
    }
    static inline void rmq_unlock_slot(char *lock) {
        __atomic_clear(lock, __ATOMIC_RELEASE);
    }
    """
    void rmq_lock_slot(char *lock) noexcept nogil
    void rmq_unlock_slot(char *lock) noexcept nogil

cdef enum:
    NUMBER_AT = 8
    START_AT = 16
    WRITTEN_AT = 24
    DURABLE_AT = 32
    CONFIRMED_AT = 40
    CHECKPOINT_AT = 48
    BEFORE_AT = 52
    BOOT_AT = 56
    BOOT_SIZE = 16
    CRC_AT = 72
    SLOT_SIZE = 76
    SECOND_SLOT = 2048
    PAGE_SIZE = 4096

cdef const char *MAGIC = b"RMQCLM01"


@cython.final
cdef class Claim:
    """The claim of one log, in a page of its file."""

    def __cinit__(self, uint8_t[::1] page not None, bytes boot not None):
        """Read the newest slot of the page; without a valid slot all values are 0."""
        if page.shape[0] != PAGE_SIZE or len(boot) != BOOT_SIZE:
            raise ValueError(f"a page of {page.shape[0]}, a boot id of {len(boot)}")
        self._page = page
        memset(self._slot, 0, SLOT_SIZE)
        memcpy(self._slot, MAGIC, 8)
        cdef const uint8_t *slot
        cdef int64_t at
        for at in (0, SECOND_SLOT):
            slot = &self._page[at]
            if (
                memcmp(slot, MAGIC, 8) == 0
                and get32(slot + CRC_AT) == body_crc_of(slot, CRC_AT)
                and <int64_t>get64(slot + NUMBER_AT) > self.get(NUMBER_AT)
            ):
                memcpy(self._slot, slot, SLOT_SIZE)
        self.is_same_boot = memcmp(
            self._slot + BOOT_AT, <const uint8_t *><const char *>boot, BOOT_SIZE
        ) == 0
        self._boot = boot

    cdef int64_t get(self, int at) noexcept nogil:
        return <int64_t>get64(self._slot + at)

    @property
    def store_number(self):
        """Number of times that the claim was stored; 0 if there was no claim."""
        return self.get(NUMBER_AT)

    @property
    def start_offset(self):
        """Start of the log."""
        return self.get(START_AT)

    @property
    def written_offset(self):
        """End of the log after its last append."""
        return self.get(WRITTEN_AT)

    @property
    def durable_offset(self):
        """Offset before which the disk has confirmed all bytes."""
        return self.get(DURABLE_AT)

    @property
    def confirmed_offset(self):
        """Offset before which the group has confirmed all bytes."""
        return self.get(CONFIRMED_AT)

    @property
    def checkpoint_crcs(self):
        """CRCs of the last two checkpoints, the newer one first."""
        return (
            <uint32_t>get32(self._slot + CHECKPOINT_AT),
            <uint32_t>get32(self._slot + BEFORE_AT),
        )

    cdef int64_t confirmed_until(self, int64_t written) noexcept nogil:
        """The confirmed offset to store, with a log that ends at `written`."""
        cdef int64_t confirmed = self.get(CONFIRMED_AT)
        if self.confirmed_mark is None:
            return confirmed
        return max(confirmed, min(self.confirmed_mark.load(), written))

    cdef void store(self, int64_t written) noexcept nogil:
        """Store the end of the log, `written`, and the current watermarks."""
        cdef int64_t durable = min(self.durable_mark.load(), written)
        cdef uint8_t *slot = self._slot
        rmq_lock_slot(&self._lock)
        put64(slot + WRITTEN_AT, written)
        put64(slot + DURABLE_AT, max(durable, self.get(DURABLE_AT)))
        put64(slot + CONFIRMED_AT, self.confirmed_until(written))
        self.put_slot()
        rmq_unlock_slot(&self._lock)

    cdef void put_slot(self) noexcept nogil:
        """Store the slot; the caller has the lock."""
        cdef uint8_t *slot = self._slot
        cdef int64_t number = self.get(NUMBER_AT) + 1
        put64(slot + NUMBER_AT, number)
        put32(slot + CRC_AT, body_crc_of(slot, CRC_AT))
        cdef int64_t at = SECOND_SLOT if number & 1 else 0
        rmq_trace(b"c", 0, slot, at, SLOT_SIZE)
        memcpy(&self._page[at], slot, SLOT_SIZE)

    cpdef void confirm(self) noexcept nogil:
        """Store what the group has confirmed, before the answers that it releases."""
        cdef int64_t written = self.get(WRITTEN_AT)
        if self.confirmed_until(written) != self.get(CONFIRMED_AT):
            self.store(written)

    def begin(self, int64_t start, int64_t end, Watermark durable not None):
        """Start the claim of this boot on a log that recovery has checked and flushed.
        """
        self.durable_mark = durable
        rmq_lock_slot(&self._lock)
        memcpy(
            self._slot + BOOT_AT, <const uint8_t *><const char *>self._boot, BOOT_SIZE
        )
        put64(self._slot + START_AT, start)
        self.lower_slot(end)
        put64(self._slot + DURABLE_AT, end)
        rmq_unlock_slot(&self._lock)
        self.is_same_boot = True
        self.is_begun = True
        self.store(end)

    cdef void lower_slot(self, int64_t end) noexcept nogil:
        cdef int at
        for at in range(START_AT, CONFIRMED_AT + 1, 8):
            put64(self._slot + at, min(end, self.get(at)))

    def lower(self, int64_t end):
        """Lower the claim to `end`, at which the log is truncated."""
        rmq_lock_slot(&self._lock)
        self.lower_slot(end)
        self.put_slot()
        rmq_unlock_slot(&self._lock)

    def begin_at(self, int64_t start):
        """Claim no bytes before `start`.

        The files of these bytes will be removed, or do not exist.
        """
        rmq_lock_slot(&self._lock)
        put64(self._slot + START_AT, start)
        self.put_slot()
        rmq_unlock_slot(&self._lock)

    def confirm_by(self, Watermark confirmed not None):
        """Store also the offset of this watermark, which the group has confirmed, from
        now on.
        """
        self.confirmed_mark = confirmed

    def update(self, int64_t written):
        """Store the claim if a position has changed; the log ends at `written`. Returns
        whether the claim was stored.
        """
        if not self.is_begun:
            return False
        if (
            written == self.get(WRITTEN_AT)
            and min(self.durable_mark.load(), written) <= self.get(DURABLE_AT)
            and self.confirmed_until(written) == self.get(CONFIRMED_AT)
        ):
            return False
        self.store(written)
        return True

    def add_checkpoint(self, uint32_t crc):
        """Store the CRC of the checkpoint that is written next."""
        rmq_lock_slot(&self._lock)
        memcpy(self._slot + BEFORE_AT, self._slot + CHECKPOINT_AT, 4)
        put32(self._slot + CHECKPOINT_AT, crc)
        self.put_slot()
        rmq_unlock_slot(&self._lock)
