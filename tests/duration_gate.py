"""A test that takes far longer than others is marked `slow`, or fails.

The wall clock would blame tests for what else runs on the machine. Three times are
taken instead: the processor time of the test; that of the children that it waited for;
and, if there were none, the time that it neither ran nor wanted to run: it slept, or
waited for a disk or a thread. The time for which the kernel let the test wait for a
processor counts for nothing, and neither does a full collection, which walks over what
all tests before have left. The limits leave room, so that only a test that is far too
long fails: neighbours cost a processor half its speed, the first test that needs a
module pays for its import, and a thread that is waited for is itself kept waiting.
"""

import gc
import operator
import os
import time
from pathlib import Path
from typing import NamedTuple, Self

BUSY_LIMIT_S = 1.5
CHILDREN_LIMIT_S = 6.0
IDLE_LIMIT_S = 3.0

GENERATED = 4
"""Factor for tests with generated examples: what they draw differs from run to run, and
the first one in a clone makes tables of characters."""

_QUEUED = Path("/proc/thread-self/schedstat")


def _queued_s() -> float:
    """Return how long this thread has waited for a processor; 0 if nobody counts it."""
    try:
        return int(_QUEUED.read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


class FullCollections:
    """Adds up the processor time of full collections."""

    def __init__(self) -> None:
        self.took_s = self._began_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        """Hear that a collection begins or ends."""
        if info["generation"] < 2:
            return
        if phase == "start":
            self._began_s = time.thread_time()
        else:
            self.took_s += time.thread_time() - self._began_s


_collections = FullCollections()
gc.callbacks.append(_collections)


class Times(NamedTuple):
    """Seconds since some moment."""

    busy: float
    children: float
    idle: float

    @classmethod
    def now(cls) -> Self:
        """Read the clocks."""
        used = os.times()
        idle = time.monotonic() - time.thread_time() - _queued_s()
        busy = time.process_time() - _collections.took_s
        return cls(busy, used[2] + used[3], idle)


class Stopwatch:
    """Takes the three times from its creation on."""

    def __init__(self, factor: int = 1) -> None:
        """`factor` multiplies the limits."""
        self._factor = factor
        self._began = Times.now()

    def complaint(self) -> str:
        """Return what is too long, or nothing."""
        passed = map(operator.sub, Times.now(), self._began)
        took = Times(*(each / self._factor for each in passed))
        if took.busy > BUSY_LIMIT_S:
            return f"ran for {took.busy:.2f} s of at most {BUSY_LIMIT_S}: mark it slow"
        if took.children > CHILDREN_LIMIT_S:
            return f"its children ran for {took.children:.2f} s: mark it slow"
        if took.idle > IDLE_LIMIT_S and not took.children:
            return (
                f"waited for {took.idle:.2f} s of at most {IDLE_LIMIT_S}: use a clock"
            )
        return ""
