"""Sums: pairs of numbers that only grow, and samples of all of them.

A row is a sum and the number of additions to it.  A sample is a copy of all rows at
once: it costs the copying of 16 bytes a row, and no work for each.  With all samples of
a day a row takes 640 bytes.  What a sample has for a row that began after it is of an
older row, or nothing: each row knows how many samples there were before it.
Known in Java as `StatsItem`, which keeps its samples itself.
"""

from array import array
from collections import deque
from collections.abc import Callable
from typing import NamedTuple


class Growth(NamedTuple):
    """What was added in a span of time."""

    value: int
    times: int
    elapsed_ms: int


class _Sample:
    """All rows at one time; `number` counts the samples of all kinds."""

    __slots__ = ("at_ms", "number", "times", "values")

    def __init__(self) -> None:
        self.number = self.at_ms = 0
        self.values, self.times = array("q"), array("q")


class Samples:
    """The last samples; the oldest is the beginning of a window that moves.

    The first is empty: before all rows.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._samples = deque([_Sample()])

    @property
    def oldest(self) -> _Sample:
        """Return the beginning of the window."""
        return self._samples[0]

    @property
    def is_full(self) -> bool:
        """Whether the window has its length."""
        return len(self._samples) == self._limit

    def take(
        self, number: int, at_ms: int, values: "array[int]", times: "array[int]"
    ) -> None:
        """Copy all rows, in place of the oldest sample if the window is full."""
        sample = self._samples.popleft() if self.is_full else _Sample()
        sample.number, sample.at_ms = number, at_ms
        sample.values[:], sample.times[:] = values, times
        self._samples.append(sample)


class Sums:
    """Rows by number; samples for windows of different lengths are the caller's."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.values, self.times = array("q"), array("q")
        self._now_ms = now_ms
        self._began_ms, self._began_after = array("q"), array("q")
        self._free: list[int] = []
        self._sampled = 0

    def __len__(self) -> int:
        """Count the rows in use."""
        return len(self.values) - len(self._free)

    def begin(self) -> int:
        """Return a new row, which is zero now and in all samples."""
        if not self._free:
            self._free.append(len(self.values))
            for column in self.values, self.times, self._began_ms, self._began_after:
                column.append(0)
        row = self._free.pop()
        self.values[row] = self.times[row] = 0
        self._began_ms[row], self._began_after[row] = self._now_ms(), self._sampled
        return row

    def end(self, row: int) -> None:
        """Give a row back; nobody may use its number from now on."""
        self._free.append(row)

    def sample(self, samples: Samples) -> None:
        """Take a sample of all rows."""
        self._sampled += 1
        samples.take(self._sampled, self._now_ms(), self.values, self.times)

    def since(self, samples: Samples, row: int) -> Growth:
        """Return what was added since the oldest sample, or since the row began."""
        start, value, times = self._began_ms[row], self.values[row], self.times[row]
        oldest = samples.oldest
        if oldest.number > self._began_after[row]:
            start = oldest.at_ms
            value -= oldest.values[row]
            times -= oldest.times[row]
        assert value >= 0 <= times, f"row {row}: sums only grow"
        return Growth(value, times, self._now_ms() - start)

    def is_idle(self, samples: Samples, row: int) -> bool:
        """Whether the row is older than a full window, and nothing was added in it."""
        oldest = samples.oldest
        return (
            samples.is_full
            and oldest.number > self._began_after[row]
            and oldest.times[row] == self.times[row]
        )
