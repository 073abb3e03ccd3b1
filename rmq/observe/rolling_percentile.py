"""Lately: the 99th percentile of the last minute, from a histogram that only grows."""

from collections import deque
from collections.abc import Sequence
from typing import Final

WINDOW_MS: Final = 60_000
STEP_MS: Final = 5_000
"""A sample that comes sooner after another is not kept."""

MAX_SAMPLES: Final = 16
"""A clock that goes back adds samples."""


class Lately:
    """The counts of a histogram now, and of a minute ago."""

    def __init__(self, bounds_ms: Sequence[float]) -> None:
        self._bounds_ms = bounds_ms
        self._samples: deque[tuple[int, Sequence[int]]] = deque(maxlen=MAX_SAMPLES)
        self._now: Sequence[int] = ()

    def sample(self, now_ms: int, counts: Sequence[int]) -> None:
        """Take the counts up to each bound, the last above all."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now_ms - WINDOW_MS:
            samples.popleft()
        if not samples or not 0 <= now_ms - samples[-1][0] < STEP_MS:
            samples.append((now_ms, counts))
        self._now = counts

    def p99_ms(self) -> float | None:
        """Return the bound that 99 % kept; one more than the last if none was kept.

        None if nothing happened.
        """
        if not self._samples:
            return None
        before = self._samples[0][1]
        counts = [now - then for now, then in zip(self._now, before, strict=True)]
        wanted, seen = 0.99 * sum(counts), 0
        if not wanted:
            return None
        for bound_ms, count in zip(self._bounds_ms, counts, strict=False):
            seen += count
            if seen >= wanted:
                return bound_ms
        return self._bounds_ms[-1] + 1
