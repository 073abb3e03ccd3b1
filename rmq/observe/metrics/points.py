"""Metrics as OpenTelemetry has them: points with attributes, and whole histograms.

Families of `exposition.py` have Prometheus's form.  A metric has Java's instrument name
and its unit apart: Prometheus appends the unit to the name.
"""

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from math import inf
from typing import Final, NamedTuple

import trio

from rmq.observe.metrics.exposition import (
    MAX_SAMPLES,
    SAMPLES_AT_ONCE,
    Family,
    Sample,
)

_JAVA_PREFIX: Final = "rocketmq_"
_UNITS: Final = ("milliseconds", "bytes")


class Point(NamedTuple):
    """One number."""

    labels: Mapping[str, str]
    value: float


class HistogramPoint(NamedTuple):
    """Counts of values up to each bound and, last, above all bounds; and their sum."""

    labels: Mapping[str, str]
    bounds: tuple[float, ...]
    counts: tuple[int, ...]
    total: float


class Metric(NamedTuple):
    """All points of one name; `kind` is counter, gauge or histogram."""

    name: str
    unit: str
    kind: str
    text: str
    points: list[Point | HistogramPoint]


async def collect_metrics(
    families: Iterable[Family | None], labels: Mapping[str, str]
) -> list[Metric]:
    """Return the metrics of families that have points; each point gets `labels`.

    The function yields to the event loop between samples.
    """
    found = []
    for family in families:
        if family is None:
            await trio.lowlevel.checkpoint()
            continue
        points: list[Point | HistogramPoint] = []
        samples: Iterator[Point | HistogramPoint | None]
        if family.kind == "histogram":
            samples = _join_histograms(family.samples, labels)
        else:
            samples = _read_numbers(family.samples, labels)
        for point in samples:
            if point is not None:
                points.append(point)
            if point is None or len(points) % SAMPLES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if points:
            name, unit = _split_unit(family.name)
            found.append(Metric(name, unit, family.kind, family.help, points))
        await trio.lowlevel.checkpoint()
    return found


def _split_unit(name: str) -> tuple[str, str]:
    if name.startswith(_JAVA_PREFIX):
        for unit in _UNITS:
            if name.endswith(f"_{unit}"):
                return name.removesuffix(f"_{unit}"), unit
    return name, ""


def _read_numbers(
    samples: Iterable[Sample | None], labels: Mapping[str, str]
) -> Iterator[Point | None]:
    for sample in islice(samples, MAX_SAMPLES):
        if sample is None:
            yield None
        else:
            yield Point({**labels, **sample.labels}, sample.value)


def _join_histograms(
    samples: Iterable[Sample | None], labels: Mapping[str, str]
) -> Iterator[HistogramPoint | None]:
    """Yield a point for the lines of each histogram: buckets, sum, count."""
    bounds: list[float] = []
    reached: list[int] = []
    total = 0.0
    for sample in islice(samples, MAX_SAMPLES):
        if sample is None:
            yield None
        elif sample.suffix == "_bucket":
            bounds.append(float(sample.labels["le"]))
            reached.append(int(sample.value))
        elif sample.suffix == "_sum":
            total = sample.value
        else:
            assert bounds[-1] == inf, sample
            counts = [
                end - start for start, end in zip([0, *reached], reached, strict=False)
            ]
            point = {**labels, **sample.labels}
            yield HistogramPoint(point, tuple(bounds[:-1]), tuple(counts), total)
            bounds, reached = [], []


_Known = dict[tuple[str, tuple[tuple[str, str], ...]], Point | HistogramPoint]
"""Points by name and labels."""


class Deltas:
    """Turns counters and histograms into their growth since the last call."""

    def __init__(self) -> None:
        self._known: _Known = {}

    def since_last(self, metrics: Iterable[Metric]) -> list[Metric]:
        """Return the metrics with points of growth; a number that became smaller has
        started again at 0.

        Points that are no longer there are forgotten.
        """
        known, self._known = self._known, {}
        found = []
        for metric in metrics:
            if metric.kind == "gauge":
                found.append(metric)
                continue
            points = [
                self._growth_of(metric.name, each, known) for each in metric.points
            ]
            found.append(metric._replace(points=points))
        return found

    def _growth_of(
        self, name: str, point: Point | HistogramPoint, known: _Known
    ) -> Point | HistogramPoint:
        key = name, tuple(sorted(point.labels.items()))
        self._known[key] = point
        before = known.get(key)
        if isinstance(point, Point):
            if not isinstance(before, Point) or point.value < before.value:
                return point
            return point._replace(value=point.value - before.value)
        if not isinstance(before, HistogramPoint):
            return point
        counts = tuple(
            now - then for now, then in zip(point.counts, before.counts, strict=True)
        )
        if min(counts) < 0:
            return point
        return point._replace(counts=counts, total=point.total - before.total)
