"""Unique keys: the id that a message gets if its producer gave it none.

Layout, as upper-case hexadecimal of big-endian bytes: address of the maker (4 or 16
bytes), process id (2), a number of this instance (4), milliseconds since the month
began in local time (4), counter (2). A client reads the time back from it.
"""

import os
from collections.abc import Callable
from datetime import datetime
from typing import Final

_PORT_SIZE: Final = 4
_HOST_SIZES: Final = (8, 20)
_COUNTER_LIMIT: Final = 1 << 16


class UniqueKeys:
    """Makes unique keys. Known in Java as `MessageClientIDSetter`."""

    def __init__(self, store_host: bytes, now_ms: Callable[[], int]) -> None:
        assert len(store_host) in _HOST_SIZES, f"{len(store_host)} bytes are no host"
        maker = (
            store_host[:-_PORT_SIZE]
            + (os.getpid() & 0xFFFF).to_bytes(2, "big")
            + (id(self) >> 4 & 0xFFFFFFFF).to_bytes(4, "big")
        )
        self._prefix = maker.hex().upper()
        self._now_ms = now_ms
        self._counter = 0
        self._month_start_ms = 0
        self._month_end_ms = 0

    def next(self) -> str:
        """Return a key that nobody made before."""
        now_ms = self._now_ms()
        if not self._month_start_ms <= now_ms < self._month_end_ms:
            self._month_start_ms, self._month_end_ms = _month_around(now_ms)
        counter = self._counter
        self._counter = (counter + 1) % _COUNTER_LIMIT
        return f"{self._prefix}{now_ms - self._month_start_ms:08X}{counter:04X}"


def _month_around(now_ms: int) -> tuple[int, int]:
    """Return when this month began and when it ends, in local time."""
    start = datetime.fromtimestamp(now_ms / 1_000).replace(
        day=1, hour=0, minute=0, second=0, microsecond=0
    )
    month = start.year * 12 + start.month
    end = start.replace(year=month // 12, month=month % 12 + 1)
    start_ms, end_ms = int(start.timestamp() * 1_000), int(end.timestamp() * 1_000)
    assert start_ms <= now_ms < end_ms, f"{now_ms} is not in the month from {start_ms}"
    return start_ms, end_ms
