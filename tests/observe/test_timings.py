"""Histograms: what is counted where, of whom, and how much is kept."""

import pytest

from rmq.observe import timings
from rmq.observe.timings import Timings
from rmq.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(clock):
    return Timings((10, 100), clock.now_ms)


def test_a_bound_holds_its_own_value(table):
    for value in (0, 10, 11, 100, 101, 5_000):
        table.add(value, topic="T")
    (one,) = table.series()
    assert (one.labels, list(one.counts), one.total) == (
        {"topic": "T"},
        [2, 2, 2],
        5_222,
    )


def test_a_block_succeeds_or_fails(table, clock):
    with table.timed(is_system="false"):
        clock.ms += 20
    with pytest.raises(ValueError, match="no"), table.timed(is_system="false"):
        raise ValueError("no")
    good, bad = table.series()
    assert good.labels == {"invocation_status": "success", "is_system": "false"}
    assert (list(good.counts), good.total) == ([0, 1, 0], 20)
    assert bad.labels["invocation_status"] == "failure"
    assert (list(bad.counts), bad.total) == ([1, 0, 0], 0)


def test_a_clock_that_goes_back_makes_no_time_negative(table, clock):
    with table.timed():
        clock.ms -= 1_000
    (one,) = table.series()
    assert (list(one.counts), one.total) == ([1, 0, 0], 0)


def test_there_is_an_end_to_names(table, monkeypatch):
    monkeypatch.setattr(timings, "MAX_SERIES", 2)
    for name in "abca":
        table.add(1, topic=name)
    assert [(one.labels["topic"], one.total) for one in table.series()] == [
        ("a", 2), ("b", 1)
    ]  # fmt: skip
    table.forget(topic="a")
    table.forget(topic="unknown")
    table.add(1, topic="c")
    assert [one.labels["topic"] for one in table.series()] == ["b", "c"]
