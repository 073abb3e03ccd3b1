"""DescriptorReserve: lets the store open files when the process has no descriptor left.

Connections can take every descriptor of a process.  The store reserves a few, opened on
/dev/null, and closes one when a file of its own cannot be opened. It opens the reserve
again as soon as there is room. A new log file needs a descriptor permanently, all other
files for a moment. If no descriptor is left, a message that needs a new file is
refused, and the next message tries again. Any thread may call these functions, because
append and pop of a list are atomic.
"""

import errno
import os
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, TypeVar

RESERVED = 8
"""Number of reserved descriptors: at one log file of 1 GiB each, they last some minutes
of full load.
"""

SHORTAGES = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOMEM})
"""Errors for missing descriptors, of the process or the system, memory or mappings."""

T = TypeVar("T")


class Room(Protocol):
    """A part that can make room for one more open file."""

    def open(self, opener: Callable[[], T]) -> T:
        """Call `opener`; if there is no room, make room and call it again."""
        ...


class NoRoom:
    """Cannot make room."""

    def open(self, opener: Callable[[], T]) -> T:
        """Call `opener` once."""
        return opener()


class DescriptorReserve:
    """A few descriptors, closed when the store needs one."""

    def __init__(self, size: int = RESERVED) -> None:
        self._size = size
        self._held: list[int] = []

    def __len__(self) -> int:
        """Count the reserved descriptors."""
        return len(self._held)

    def open_reserve(self) -> None:
        """Reserve the missing descriptors, if there is room."""
        with suppress(OSError):
            while len(self._held) < self._size:
                self._held.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))

    def open(self, opener: Callable[[], T]) -> T:
        """Call `opener`; if it finds no descriptor, release a reserved one and call it
        again.

        `opener` must have no effect if it raises.
        """
        try:
            return opener()
        except OSError as error:
            if error.errno not in SHORTAGES or not self._held:
                raise
        os.close(self._held.pop())
        try:
            return opener()
        finally:
            self.open_reserve()

    def close(self) -> None:
        """Close all reserved descriptors."""
        while self._held:
            os.close(self._held.pop())
