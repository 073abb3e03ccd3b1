"""Measures: histograms, numbers over time, rates and counters of a process.

* `Histogram` counts values by fixed bounds; `HistogramTable` has one for each set of
  labels; `RollingPercentile` is the 99th percentile of the last minute.
* `TimeSeries` is a ring of numbers, one for each step of time; `TimeSeriesTable` has
  rings by name; `Throughput` is a ring of two seconds.
* `GrowthRate` computes the growth of a number per second from samples.
* `CounterArray` has any number of counters, and `CounterSnapshots` their values at the
  beginning of a moving window.

Call everything from one thread; compiled code counts its own times (`FlushTimes` and
`RpcTimes`), and these counts are sampled here.
"""

from array import array
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from rmq.core.clock import SystemClock

T = TypeVar("T")

_clock: Final = SystemClock()

MAX_HISTOGRAMS: Final = 20_000
"""Limit of sets of labels, such as topics; values of further sets are not counted."""

PERCENTILE_WINDOW_MS: Final = 60_000
PERCENTILE_STEP_MS: Final = 5_000
MAX_SAMPLES: Final = 64
"""Maximum number of samples of one window; a clock that is set back adds some."""

POINTS: Final = 180
STEP_MS: Final = 20_000
MAX_SERIES: Final = 200
UNKNOWN: Final = 0xFFFF_FFFF
"""Value of a step without a sample; larger numbers are stored as UNKNOWN - 1."""


# -- samples of numbers that only grow


class Window(Generic[T]):
    """Samples of a moving span of time, and the latest sample.

    The first sample is as old as the window, or older. A sample within `step_ms` of the
    one before only replaces the latest sample.
    """

    def __init__(self, span_ms: int, step_ms: int) -> None:
        self._span_ms = span_ms
        self._step_ms = step_ms
        self._samples: deque[tuple[int, T]] = deque(maxlen=MAX_SAMPLES)
        self._latest: tuple[int, T] | None = None

    def __len__(self) -> int:
        return len(self._samples)

    def sample(self, now_ms: int, value: T) -> None:
        """Add the value at this time."""
        samples = self._samples
        while len(samples) > 1 and samples[1][0] <= now_ms - self._span_ms:
            samples.popleft()
        if not samples or not 0 <= now_ms - samples[-1][0] < self._step_ms:
            samples.append((now_ms, value))
        self._latest = now_ms, value

    def shift_times(self, step_ms: int) -> None:
        """Move all samples, because the clock was set."""
        moved = [(at_ms + step_ms, value) for at_ms, value in self._samples]
        self._samples.clear()
        self._samples.extend(moved)
        if self._latest is not None:
            self._latest = self._latest[0] + step_ms, self._latest[1]

    def first_and_latest(self) -> tuple[tuple[int, T], tuple[int, T]] | None:
        """Return the first and the latest sample with their times; None if there is no
        sample.
        """
        if self._latest is None:
            return None
        return self._samples[0], self._latest


class GrowthRate(Window[int]):
    """The speed at which a number grows, over a moving span of time."""

    def __init__(self, span_ms: int, step_ms: int, least_ms: int) -> None:
        super().__init__(span_ms, step_ms)
        self._least_ms = least_ms

    def per_second(self) -> float | None:
        """Return the growth per second; None before the samples span `least_ms`."""
        ends = self.first_and_latest()
        if ends is None or ends[1][0] - ends[0][0] < self._least_ms:
            return None
        (first_ms, first), (latest_ms, latest) = ends
        return (latest - first) * 1_000 / (latest_ms - first_ms)


# -- histograms


class Histogram(msgspec.Struct):
    """The number of values up to each bound, the number above all bounds, and the sum
    of the values.
    """

    labels: Mapping[str, str]
    counts: "array[int]"
    total: int


def percentile_of(
    bounds: Sequence[float], counts: Sequence[int], share: float
) -> float | None:
    """Return the smallest bound that covers a share of the values.

    If no bound does, the last bound + 1; None if there are no values.
    """
    wanted, seen = share * sum(counts), 0
    if not wanted:
        return None
    for bound, count in zip(bounds, counts, strict=False):
        seen += count
        if seen >= wanted:
            return bound
    return bounds[-1] + 1


class HistogramTable:
    """Histograms with the same bounds, by their labels."""

    def __init__(self, bounds: tuple[int, ...], now_ms: Callable[[], int]) -> None:
        assert list(bounds) == sorted(bounds), bounds
        self.bounds = bounds
        self._now_ms = now_ms
        self._histograms: dict[tuple[str, ...], Histogram] = {}

    def add(self, value: int, times: int = 1, **labels: str) -> None:
        """Count a value; a negative value (the clock was set back) counts as 0."""
        value = max(0, value)
        key = tuple(labels.values())
        histogram = self._histograms.get(key)
        if histogram is None:
            if len(self._histograms) >= MAX_HISTOGRAMS:
                return
            counts = array("q", bytes(8 * (len(self.bounds) + 1)))
            histogram = self._histograms[key] = Histogram(labels, counts, 0)
        histogram.counts[bisect_left(self.bounds, value)] += times
        histogram.total += times * value

    @contextmanager
    def time_block(self, **labels: str) -> Iterator[None]:
        """Count the milliseconds of a block; an exception counts as a failure."""
        began_ms, status = self._now_ms(), "failure"
        try:
            yield
            status = "success"
        finally:
            elapsed_ms = self._now_ms() - began_ms
            self.add(elapsed_ms, 1, invocation_status=status, **labels)

    def remove(self, **labels: str) -> None:
        """Remove the histogram of exactly these labels."""
        self._histograms.pop(tuple(labels.values()), None)

    def all(self) -> Iterator[Histogram]:
        """Yield every histogram."""
        yield from self._histograms.values()


class RollingPercentile:
    """The 99th percentile of the last minute, from a histogram that only grows."""

    def __init__(self, bounds_ms: Sequence[float]) -> None:
        self._bounds_ms = bounds_ms
        self._window = Window[Sequence[int]](PERCENTILE_WINDOW_MS, PERCENTILE_STEP_MS)

    def sample(self, now_ms: int, counts: Sequence[int]) -> None:
        """Add a sample: the counts up to each bound, and at the end the count above all
        bounds.
        """
        self._window.sample(now_ms, counts)

    def shift_times(self, step_ms: int) -> None:
        """Move all samples, because the clock was set."""
        self._window.shift_times(step_ms)

    def p99_ms(self) -> float | None:
        """Return the smallest bound that covers 99 % of the values.

        If no bound does, the last bound + 1; None if the minute has no value.
        """
        ends = self._window.first_and_latest()
        if ends is None:
            return None
        (_, first), (_, latest) = ends
        counts = [now - then for now, then in zip(latest, first, strict=True)]
        return percentile_of(self._bounds_ms, counts, 0.99)


# -- numbers over time


class TimeSeries:
    """A ring: one number for each of the last steps of time, 4 bytes each."""

    __slots__ = ("_last", "_step_ms", "_values")

    def __init__(
        self, now_ms: int, points: int = POINTS, step_ms: int = STEP_MS
    ) -> None:
        self._values = array("I", [UNKNOWN]) * points
        self._step_ms = step_ms
        self._last = now_ms // step_ms

    def put(self, now_ms: int, value: int) -> None:
        """Set the number of this step."""
        self._advance(now_ms)
        at = self._last % len(self._values)
        self._values[at] = min(max(0, value), UNKNOWN - 1)

    def add(self, now_ms: int, count: int) -> None:
        """Add to the number of this step."""
        self._advance(now_ms)
        before = self._values[self._last % len(self._values)]
        self.put(now_ms, count if before == UNKNOWN else before + count)

    def shift_times(self, step_ms: int) -> None:
        """Move all numbers by whole steps, because the clock was set."""
        points, steps = len(self._values), step_ms // self._step_ms
        cut = -steps % points
        self._values = self._values[cut:] + self._values[:cut]
        self._last += steps

    def values(self, now_ms: int) -> list[int | None]:
        """Return the numbers, the oldest first; None for a step without a sample."""
        self._advance(now_ms)
        at = self._last % len(self._values) + 1
        ordered = self._values[at:] + self._values[:at]
        return [None if each == UNKNOWN else each for each in ordered]

    def is_silent(self, now_ms: int) -> bool:
        """Whether all numbers are zero or unknown."""
        self._advance(now_ms)
        values = self._values
        return values.count(0) + values.count(UNKNOWN) == len(values)

    def _advance(self, now_ms: int) -> None:
        """Begin the step of this time; a clock that was set back stays in its step."""
        now, points = now_ms // self._step_ms, len(self._values)
        for step in range(max(self._last + 1, now - points + 1), now + 1):
            self._values[step % points] = UNKNOWN
        self._last = max(self._last, now)


class Throughput:
    """Bytes of the current second and of the second before it."""

    def __init__(self, now_ms: Callable[[], int] = _clock.steady_ms) -> None:
        self._now_ms = now_ms
        self._seconds = TimeSeries(now_ms(), points=2, step_ms=1_000)

    def add(self, count: int) -> None:
        """Count bytes that were sent or received now."""
        self._seconds.add(self._now_ms(), count)

    def this_second(self) -> int:
        """Return the bytes of the current second."""
        return self._seconds.values(self._now_ms())[1] or 0

    def per_second(self) -> int:
        """Return the bytes of the second before the current one."""
        return self._seconds.values(self._now_ms())[0] or 0


class TimeSeriesTable:
    """An hour of numbers, one per 20 s, for the groups and topics that need it.

    A series takes 720 bytes, and MAX_SERIES series take 144 kB. A new name replaces the
    name that was used longest ago.
    """

    def __init__(self) -> None:
        self._series: dict[str, TimeSeries] = {}
        self._totals: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._series)

    def get_or_add(self, name: str, now_ms: int) -> TimeSeries:
        """Return the series of a name; add one if it is missing."""
        series = self._series.pop(name, None)
        if series is None:
            series = TimeSeries(now_ms)
            if len(self._series) >= MAX_SERIES:
                oldest = next(iter(self._series))
                del self._series[oldest]
                self._totals.pop(oldest, None)
        self._series[name] = series
        return series

    def shift_times(self, step_ms: int) -> None:
        """Move all numbers, because the clock was set."""
        for series in self._series.values():
            series.shift_times(step_ms)

    def values(self, name: str, now_ms: int) -> list[int | None] | None:
        """Return the hour of a name; None if it has no series."""
        series = self._series.get(name)
        return None if series is None else series.values(now_ms)

    def put_all(self, amounts: Mapping[str, int], now_ms: int) -> None:
        """Put these amounts, and 0 for all other series.

        A name whose amount is 0 gets no new series.  A series with an hour of zeros is
        removed.
        """
        for name, amount in amounts.items():
            if amount or name in self._series:
                self.get_or_add(name, now_ms).put(now_ms, amount)
        for name, series in list(self._series.items()):
            if not amounts.get(name):
                series.put(now_ms, 0)
                if series.is_silent(now_ms):
                    del self._series[name]

    def add_growth(self, total: Callable[[str], int], now_ms: int) -> None:
        """Add to each series the growth of its total since the last call."""
        for name, series in self._series.items():
            now = total(name)
            series.add(now_ms, max(0, now - self._totals.get(name, now)))
            self._totals[name] = now


# -- counters


class CounterGrowth(NamedTuple):
    """The additions in a span of time."""

    value: int
    times: int
    elapsed_ms: int


class _Snapshot:
    """All counters at one time; `number` counts the snapshots of all windows."""

    __slots__ = ("at_ms", "number", "times", "values")

    def __init__(self) -> None:
        self.number = self.at_ms = 0
        self.values, self.times = array("q"), array("q")


class CounterSnapshots:
    """The last snapshots; the oldest is the beginning of a moving window.

    The first is empty: before all counters.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._snapshots = deque([_Snapshot()])

    @property
    def oldest_snapshot(self) -> _Snapshot:
        """Return the beginning of the window."""
        return self._snapshots[0]

    @property
    def is_full(self) -> bool:
        """Whether the window has its length."""
        return len(self._snapshots) == self._limit

    def add(
        self, number: int, at_ms: int, values: "array[int]", times: "array[int]"
    ) -> None:
        """Copy all counters, in place of the oldest snapshot if the window is full."""
        snapshot = self._snapshots.popleft() if self.is_full else _Snapshot()
        snapshot.number, snapshot.at_ms = number, at_ms
        snapshot.values[:], snapshot.times[:] = values, times
        self._snapshots.append(snapshot)


class CounterArray:
    """Counters by row: a sum that only grows, and the number of additions to it.

    A snapshot copies all rows at once, 16 bytes each, without work for a single row.
    With all snapshots of a day a row takes 640 bytes. A row may be younger than a
    snapshot, which then has the values of an older row with this number. So each row
    has the number of snapshots before its creation. A row is known in Java as
    `StatsItem`, which keeps its snapshots itself.
    """

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.values, self.times = array("q"), array("q")
        self._now_ms = now_ms
        self._began_ms, self._began_after = array("q"), array("q")
        self._free: list[int] = []
        self._snapshot_count = 0

    def __len__(self) -> int:
        """Count the rows in use."""
        return len(self.values) - len(self._free)

    def add_row(self) -> int:
        """Return a new row, which is zero now and in all snapshots."""
        if not self._free:
            self._free.append(len(self.values))
            for column in self.values, self.times, self._began_ms, self._began_after:
                column.append(0)
        row = self._free.pop()
        self.values[row] = self.times[row] = 0
        self._began_ms[row] = self._now_ms()
        self._began_after[row] = self._snapshot_count
        return row

    def remove_row(self, row: int) -> None:
        """Free a row; the caller must not use its number any more."""
        self._free.append(row)

    def take_snapshot(self, snapshots: CounterSnapshots) -> None:
        """Add a snapshot of all rows to a window."""
        self._snapshot_count += 1
        number, now_ms = self._snapshot_count, self._now_ms()
        snapshots.add(number, now_ms, self.values, self.times)

    def growth_of(self, snapshots: CounterSnapshots, row: int) -> CounterGrowth:
        """Return the amount added since the oldest snapshot, or since the row began."""
        start, value, times = self._began_ms[row], self.values[row], self.times[row]
        oldest = snapshots.oldest_snapshot
        if oldest.number > self._began_after[row]:
            start = oldest.at_ms
            value -= oldest.values[row]
            times -= oldest.times[row]
        assert value >= 0 <= times, f"row {row}: counters only grow"
        return CounterGrowth(value, times, self._now_ms() - start)

    def is_idle(self, snapshots: CounterSnapshots, row: int) -> bool:
        """Whether the row is older than a full window, and nothing was added in it."""
        oldest = snapshots.oldest_snapshot
        return (
            snapshots.is_full
            and oldest.number > self._began_after[row]
            and oldest.times[row] == self.times[row]
        )
