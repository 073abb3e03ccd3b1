"""ClockSteps: detects that the wall clock was set, and notifies all parts that store
times of this clock.

A step is a difference between the wall clock and the steady clock since the last check.
The broker checks once a second. Parts that will act at a stored time check for a step
first. Records in the log keep their store times: `store_time` corrects these times
after a step back. A step forward needs no correction: it looks like a pause of the
machine. Belongs to one thread.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

from rmq.core.clock import Clock

logger = logging.getLogger(__name__)

STEP_MS: Final = 500
"""Minimum difference that counts as a step: a slewed clock differs by less than a
millisecond per second.
"""

CHECK_S: Final = 1.0
MAX_STEPS: Final = 16
"""Maximum number of steps back for which store times are corrected; above it the oldest
is removed.
"""


class _StepBack(NamedTuple):
    """A step back, with the ends of the log before and after."""

    sure_end: int
    log_end: int
    now_ms: int
    step_ms: int


class ClockSteps:
    """The steps of one process' wall clock."""

    def __init__(self, clock: Clock, log_end: Callable[[], int] = lambda: 0) -> None:
        self._clock = clock
        self._log_end = log_end
        self._wall_ms, self._steady_ms = clock.now_ms(), clock.steady_ms()
        self._end = log_end()
        self._steps_back: deque[_StepBack] = deque(maxlen=MAX_STEPS)
        self.callbacks: list[Callable[[int], object]] = []
        """Callbacks that get the milliseconds by which the clock was set; negative:
        back.
        """

    def notice_step(self) -> int:
        """Return the clock's step since the last check in ms, or 0; report a step."""
        now_ms, steady_ms = self._clock.now_ms(), self._clock.steady_ms()
        step_ms = now_ms - self._wall_ms - (steady_ms - self._steady_ms)
        before, self._end = self._end, self._log_end()
        self._wall_ms, self._steady_ms = now_ms, steady_ms
        if abs(step_ms) < STEP_MS:
            return 0
        logger.warning("the clock jumped by %d s", round(step_ms / 1_000))
        if step_ms < 0:
            self._steps_back.append(_StepBack(before, self._end, now_ms, step_ms))
        for callback in self.callbacks:
            callback(step_ms)
        return step_ms

    def store_time(self, stored_ms: int, offset: int) -> int:
        """Return the store time of the record at an offset, by the current clock.

        A record from the last second before the step counts as stored after the step,
        unless its time is in the future.
        """
        for step in self._steps_back:
            if offset < step.sure_end or (
                offset < step.log_end and stored_ms > step.now_ms
            ):
                stored_ms += step.step_ms
        return stored_ms
