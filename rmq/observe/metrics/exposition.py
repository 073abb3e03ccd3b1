"""Metrics as Prometheus reads them: text format 0.0.4.

    # HELP name text
    # TYPE name counter|gauge|histogram
    name{label="value",…} number

A histogram has one line for each bound (`name_bucket`, label `le`), the sum of all
values and their count.

A family without samples is left out.  `expose` yields to the event loop between
samples: a scrape of a large broker must not delay a send.  A source with much work
before its next family or sample yields None now and then: other tasks run.
"""

from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import NamedTuple

import trio

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MAX_SAMPLES = 50_000
"""Limit of samples of one family: Java's default of metricsOtelCardinalityLimit."""

SAMPLES_AT_ONCE = 20
"""Number of samples between two yields: some tenths of a millisecond of the loop."""

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One number with the labels that distinguish it in its family."""

    value: float
    labels: Mapping[str, str] = {}
    suffix: str = ""
    """Text after the family's name, for the parts of a histogram."""


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample | None]


Meter = tuple[str, Iterable[Family | None], Mapping[str, str]]
"""A meter of OpenTelemetry: its name, its families, and their common labels."""


def gauge_family(name: str, text: str, value: float, **labels: str) -> Family:
    """Return a gauge family with one sample."""
    return Family(name, "gauge", text, [Sample(value, labels)])


def counter_family(name: str, text: str, value: float, **labels: str) -> Family:
    """Return a counter family with one sample."""
    return Family(name, "counter", text, [Sample(value, labels)])


def histogram_samples(
    bounds: Iterable[float],
    counts: Iterable[int],
    total: float,
    labels: Mapping[str, str],
) -> Iterator[Sample]:
    """Yield the parts of one histogram; the last count is above all bounds."""
    reached = 0
    for bound, count in zip((*bounds, inf), counts, strict=True):
        reached += count
        le = "+Inf" if bound == inf else repr(float(bound))
        yield Sample(reached, {**labels, "le": le}, "_bucket")
    yield Sample(total, labels, "_sum")
    yield Sample(reached, labels, "_count")


async def expose(
    families: Iterable[Family | None], labels: Mapping[str, str]
) -> bytearray:
    """Return the text of families; every sample gets `labels`, too."""
    base = dict(labels)
    text = bytearray()
    for family in families:
        if family is not None:
            await _add_family(text, family, base)
        await trio.lowlevel.checkpoint()
    return text


async def _add_family(text: bytearray, family: Family, base: Mapping[str, str]) -> None:
    assert family.kind in ("counter", "gauge", "histogram"), family.name
    number = 0
    for sample in family.samples:
        if sample is None:
            await trio.lowlevel.checkpoint()
            continue
        if number == MAX_SAMPLES:
            break
        if number == 0:
            text += (
                f"# HELP {family.name} {family.help}\n"
                f"# TYPE {family.name} {family.kind}\n"
            ).encode()
        number += 1
        text += _sample_line(family.name + sample.suffix, sample, base).encode()
        if number % SAMPLES_AT_ONCE == 0:
            await trio.lowlevel.checkpoint()


def _sample_line(name: str, sample: Sample, base: Mapping[str, str]) -> str:
    labels = {**base, **sample.labels}
    text = ",".join(f'{k}="{labels[k].translate(_ESCAPES)}"' for k in sorted(labels))
    return f"{name}{{{text}}} {float(sample.value)!r}\n"
