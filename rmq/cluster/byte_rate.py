"""ByteRate: bytes of the last whole second, as 907 shows them."""

import time


class ByteRate:
    """Counts bytes by the second."""

    def __init__(self) -> None:
        self._second = 0
        self._bytes = 0
        self._last = 0

    def add(self, count: int) -> None:
        """Count bytes that went or came now."""
        self._turn()
        self._bytes += count

    def of_this_second(self) -> int:
        """Return the bytes of the second that runs."""
        self._turn()
        return self._bytes

    def per_second(self) -> int:
        """Return the bytes of the second before this one."""
        self._turn()
        return self._last

    def _turn(self) -> None:
        now = int(time.monotonic())
        if now != self._second:
            self._last = self._bytes if now == self._second + 1 else 0
            self._second, self._bytes = now, 0
