"""Alarm: the next time at which a task has something to do.

Several parts set times. The task that owns the alarm wakes up at the earliest time and
decides itself which work is due. Without a time it sleeps.
"""

import math
from collections.abc import Callable

import trio


class Alarm:
    """One task waits; every part of the program in its thread may set a time."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        """`now_ms` is a clock that never goes back."""
        self.at_ms: float = math.inf
        """The earliest time that was set since the last wake-up."""
        self._now_ms = now_ms
        self._earlier = trio.Event()

    def wake_at(self, at_ms: float) -> None:
        """Wake the task at this time, or at an earlier one that is set."""
        if at_ms < self.at_ms:
            self.at_ms = at_ms
            self._earlier.set()

    async def wait(self) -> None:
        """Return at the earliest time that is set, and clear it."""
        is_over = False
        while not is_over:
            left_s = max(self.at_ms - self._now_ms(), 0) / 1_000
            with trio.move_on_after(left_s) as scope:
                await self._earlier.wait()
            self._earlier = trio.Event()
            is_over = scope.cancelled_caught
        self.at_ms = math.inf
