"""Unique keys: the id of a message whose producer did not set one.

Layout, as upper-case hexadecimal of big-endian bytes: IP address (4 or 16 bytes),
process id (2), number of this instance (4), milliseconds since the month began (4),
counter (2). The month begins in local time; a client reads the time back from the key.
Belongs to the thread that owns the store.
"""

import itertools
import os
import time
from datetime import datetime

cimport cython
from cpython.unicode cimport PyUnicode_DecodeASCII
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

cdef const char *DIGITS = "0123456789ABCDEF"

cdef enum:
    PORT_SIZE = 4
    TIME_DIGITS = 8
    COUNTER_DIGITS = 4
    KEY_LIMIT = PREFIX_LIMIT + TIME_DIGITS + COUNTER_DIGITS


_instances = itertools.count()


cdef inline void _put_hexadecimal(
    uint8_t *out, int32_t digits, uint32_t number
) noexcept nogil:
    cdef int32_t i
    for i in range(digits):
        out[i] = DIGITS[number >> (4 * (digits - 1 - i)) & 15]


@cython.final
cdef class UniqueKeys:
    """Makes unique keys. Known in Java as `MessageClientIDSetter`."""

    def __init__(self, bytes store_host not None, now_ms):
        """`store_host` is this broker's address and port as records store them."""
        cdef bytes prefix
        if len(store_host) not in (8, 20):
            raise ValueError(f"{len(store_host)} bytes are no host")
        prefix = (
            store_host[:-PORT_SIZE]
            + (os.getpid() & 0xFFFF).to_bytes(2, "big")
            + (time.time_ns() // 1_000 + next(_instances) & 0xFFFFFFFF).to_bytes(
                4, "big"
            )
        ).hex().upper().encode()
        self.now_ms = now_ms
        self.prefix_size = <int32_t>len(prefix)
        memcpy(self.prefix, <const char *>prefix, self.prefix_size)
        self.size = self.prefix_size + TIME_DIGITS + COUNTER_DIGITS

    def next(self):
        """Return a new unique key; ValueError if the clock is no date."""
        cdef uint8_t key[KEY_LIMIT]
        self.write_next(key)
        return PyUnicode_DecodeASCII(<char *>key, self.size, NULL)

    cdef int write_next(self, uint8_t *out) except -1:
        """Write what `next` returns; `size` bytes."""
        now_ms = self.now_ms()
        if not self.write(out, now_ms):
            raise ValueError(f"{now_ms} ms is not a time of this calendar")
        return 0

    cdef bint write(self, uint8_t *out, int64_t now_ms) noexcept nogil:
        """Write a key of `size` bytes; False if the clock is no date."""
        if not self.month_start_ms <= now_ms < self.month_end_ms:
            if not self.start_month(now_ms):
                return False
        memcpy(out, self.prefix, self.prefix_size)
        out += self.prefix_size
        _put_hexadecimal(out, TIME_DIGITS, <uint32_t>(now_ms - self.month_start_ms))
        _put_hexadecimal(out + TIME_DIGITS, COUNTER_DIGITS, self.counter)
        self.counter = (self.counter + 1) & 0xFFFF
        return True

    cdef bint start_month(self, int64_t now_ms) noexcept nogil:
        """Set the begin and the end of the current month, in local time."""
        with gil:
            try:
                start = datetime.fromtimestamp(now_ms / 1_000).replace(
                    day=1, hour=0, minute=0, second=0, microsecond=0
                )
                month = start.year * 12 + start.month
                end = start.replace(year=month // 12, month=month % 12 + 1)
                self.month_start_ms = int(start.timestamp() * 1_000)
                self.month_end_ms = int(end.timestamp() * 1_000)
            except (OSError, OverflowError, ValueError):
                return False
        return True
