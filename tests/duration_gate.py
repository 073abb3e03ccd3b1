"""A test that takes longer than a quarter of a second is marked `slow`, or fails.

The wall clock would blame tests for what else runs on the machine. Two times are taken
instead: the processor time of the test and of the children that it waited for, and the
time that it neither ran nor wanted to run: it slept, or waited for a disk, a thread or
a child. The time for which the kernel let the test wait for a processor counts for
neither. Both limits leave room, so that only a test that is far too long fails:
neighbours cost a processor half its speed, the first test that needs a library pays for
its import, and a thread or child that is waited for is itself kept waiting.
"""

import os
import time
from pathlib import Path

BUSY_LIMIT_S = 1.0
IDLE_LIMIT_S = 1.0

_QUEUED = Path("/proc/thread-self/schedstat")


def _queued_s() -> float:
    """Return how long this thread has waited for a processor; 0 if nobody counts it."""
    try:
        return int(_QUEUED.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


class Stopwatch:
    """Takes the two times from its creation on."""

    def __init__(self) -> None:
        self._began = self._clocks()

    @staticmethod
    def _clocks() -> tuple[float, float]:
        used = os.times()
        running = time.thread_time() + _queued_s()
        return time.process_time() + used[2] + used[3], time.monotonic() - running

    def complaint(self) -> str:
        """Return what is too long, or nothing."""
        busy_s, idle_s = (
            now - then for now, then in zip(self._clocks(), self._began, strict=True)
        )
        if busy_s > BUSY_LIMIT_S:
            return f"ran for {busy_s:.2f} s of at most {BUSY_LIMIT_S}: mark it slow"
        if idle_s > IDLE_LIMIT_S:
            return f"waited for {idle_s:.2f} s of at most {IDLE_LIMIT_S}: use a clock"
        return ""
