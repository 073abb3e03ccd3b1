"""Metrics as Prometheus reads them: text format 0.0.4.

    # HELP name text
    # TYPE name counter|gauge
    name{label="value",…} number

A family without samples is left out.  Writing yields to the event loop between samples:
a scrape of a large broker must not delay a send.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import trio

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

MAX_SAMPLES = 50_000
"""Of one family, as Java's default of metricsOtelCardinalityLimit."""

SAMPLES_AT_ONCE = 20
"""Some tenths of a millisecond of the loop."""

_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"', "\n": "\\n"})


class Sample(NamedTuple):
    """One number with the labels that tell it from others of its family."""

    value: float
    labels: Mapping[str, str] = {}


class Family(NamedTuple):
    """All samples of one name."""

    name: str
    kind: str
    help: str
    samples: Iterable[Sample]


async def expose(families: Iterable[Family], labels: Mapping[str, str]) -> bytes:
    """Write families; every sample gets `labels` besides its own."""
    base = dict(labels)
    lines: list[str] = []
    for family in families:
        assert family.kind in ("counter", "gauge"), family.name
        head = len(lines)
        for number, sample in enumerate(islice(family.samples, MAX_SAMPLES), 1):
            lines.append(_line(family.name, sample, base))
            if number % SAMPLES_AT_ONCE == 0:
                await trio.lowlevel.checkpoint()
        if len(lines) > head:
            lines[head:head] = [
                f"# HELP {family.name} {family.help}",
                f"# TYPE {family.name} {family.kind}",
            ]
        await trio.lowlevel.checkpoint()
    return ("\n".join(lines) + "\n").encode()


def _line(name: str, sample: Sample, base: Mapping[str, str]) -> str:
    labels = {**base, **sample.labels}
    text = ",".join(f'{k}="{labels[k].translate(_ESCAPES)}"' for k in sorted(labels))
    return f"{name}{{{text}}} {float(sample.value)!r}"
