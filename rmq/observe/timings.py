"""Timings: how long topics and groups took to create, how old transactions were.

A histogram for each set of labels, with the bounds of Java's exporter. Call from the
trio thread.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

CREATION_BOUNDS_MS: Final = (10, 100, 1_000, 3_000, 5_000)
COMMIT_BOUNDS_S: Final = (5, 60, 600, 3_600, 43_200, 86_400)

MAX_SERIES: Final = 20_000
"""Sets of labels, such as topics; values of more are not counted."""


class Series(msgspec.Struct):
    """One histogram: the values up to each bound, last those above all; their sum."""

    labels: Mapping[str, str]
    counts: "array[int]"
    total: int


class Timings:
    """Histograms of one name."""

    def __init__(self, bounds: tuple[int, ...], now_ms: Callable[[], int]) -> None:
        assert list(bounds) == sorted(bounds), bounds
        self.bounds = bounds
        self._now_ms = now_ms
        self._series: dict[tuple[str, ...], Series] = {}

    def add(self, value: int, **labels: str) -> None:
        """Count one value; a negative one, of a clock set back, counts as 0."""
        value = max(0, value)
        key = tuple(labels.values())
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= MAX_SERIES:
                return
            counts = array("q", bytes(8 * (len(self.bounds) + 1)))
            series = self._series[key] = Series(labels, counts, 0)
        series.counts[bisect_left(self.bounds, value)] += 1
        series.total += value

    @contextmanager
    def timed(self, **labels: str) -> Iterator[None]:
        """Count the ms of a block; an exception counts as a failure."""
        began_ms, status = self._now_ms(), "failure"
        try:
            yield
            status = "success"
        finally:
            elapsed_ms = self._now_ms() - began_ms
            self.add(elapsed_ms, invocation_status=status, **labels)

    def forget(self, **labels: str) -> None:
        """Remove the histogram of exactly these labels."""
        self._series.pop(tuple(labels.values()), None)

    def series(self) -> Iterator[Series]:
        """Yield every histogram."""
        yield from self._series.values()
