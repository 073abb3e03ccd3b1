"""Measures: histograms, series, rates and counters against models."""

from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from rmq.core import measure
from rmq.core.measure import (
    MAX_SAMPLES,
    MAX_SERIES,
    PERCENTILE_STEP_MS,
    PERCENTILE_WINDOW_MS,
    POINTS,
    STEP_MS,
    UNKNOWN,
    CounterArray,
    CounterSnapshots,
    GrowthRate,
    HistogramTable,
    RollingPercentile,
    Throughput,
    TimeSeries,
    TimeSeriesTable,
    Window,
)
from rmq.observe.views import show_view
from rmq.testing import ManualClock
from tests.observe.test_monitor import incident

__all__ = ["incident"]

LIMIT = 3
NOW = 1_800_000_000_000

# -- histograms


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def table(clock):
    return HistogramTable((10, 100), clock.now_ms)


def test_a_bound_holds_its_own_value(table):
    for value in (0, 10, 11, 100, 101, 5_000):
        table.add(value, topic="T")
    (one,) = table.all()
    assert (one.labels, list(one.counts), one.total) == (
        {"topic": "T"},
        [2, 2, 2],
        5_222,
    )


def test_a_block_succeeds_or_fails(table, clock):
    with table.time_block(is_system="false"):
        clock.ms += 20
    with pytest.raises(ValueError, match="no"), table.time_block(is_system="false"):
        raise ValueError("no")
    good, bad = table.all()
    assert good.labels == {"invocation_status": "success", "is_system": "false"}
    assert (list(good.counts), good.total) == ([0, 1, 0], 20)
    assert bad.labels["invocation_status"] == "failure"
    assert (list(bad.counts), bad.total) == ([1, 0, 0], 0)


def test_a_clock_that_goes_back_makes_no_time_negative(table, clock):
    with table.time_block():
        clock.ms -= 1_000
    (one,) = table.all()
    assert (list(one.counts), one.total) == ([1, 0, 0], 0)


def test_there_is_an_end_to_names(table, monkeypatch):
    monkeypatch.setattr(measure, "MAX_HISTOGRAMS", 2)
    for name in "abca":
        table.add(1, topic=name)
    assert [(one.labels["topic"], one.total) for one in table.all()] == [
        ("a", 2), ("b", 1)
    ]  # fmt: skip
    table.remove(topic="a")
    table.remove(topic="unknown")
    table.add(1, topic="c")
    assert [one.labels["topic"] for one in table.all()] == ["b", "c"]


def test_the_bound_that_99_percent_kept():
    percentile = RollingPercentile((1, 3, 5))
    assert percentile.p99_ms() is None
    percentile.sample(0, (50, 0, 0, 9))
    assert percentile.p99_ms() is None, "what was before the first look does not count"
    percentile.sample(10_000, (149, 1, 0, 9))
    assert percentile.p99_ms() == 1
    percentile.sample(20_000, (149, 2, 0, 9))
    assert percentile.p99_ms() == 3
    percentile.sample(30_000, (149, 2, 0, 99))
    assert percentile.p99_ms() == 6


def test_it_forgets_what_is_older_than_a_minute():
    percentile = RollingPercentile((1, 3))
    percentile.sample(0, (0, 0, 0))
    for second in range(1, 200):
        percentile.sample(second * 1_000, (second, 0, 7))
        slow = second < 65
        assert (percentile.p99_ms() == 4) is slow, second
    percentile.sample(300_000, (199, 0, 7))
    percentile.sample(400_000, (199, 0, 7))
    assert percentile.p99_ms() is None


def test_a_clock_that_goes_back():
    percentile = RollingPercentile((1, 3))
    window = Window(PERCENTILE_WINDOW_MS, PERCENTILE_STEP_MS)
    for number in range(100):
        percentile.sample(1_000_000 - number * 1_000, (number, 0, 0))
        window.sample(1_000_000 - number * 1_000, number)
    assert percentile.p99_ms() == 1
    assert len(window) <= MAX_SAMPLES


# -- rates


def test_a_rate_is_known_after_the_least_time():
    rate = GrowthRate(span_ms=60_000, step_ms=10_000, least_ms=20_000)
    assert rate.per_second() is None
    for second in range(0, 100, 5):
        rate.sample(second * 1_000, 100 + second * min(second, 50))
        assert (rate.per_second() is None) is (second < 20), second
    assert rate.per_second() == pytest.approx((50 * 95 - 30 * 30) / 65)


def test_a_throughput_is_that_of_whole_seconds():
    clock = ManualClock()
    clock.ms = 10_000
    rate = Throughput(clock.now_ms)
    rate.add(3)
    clock.ms += 999
    rate.add(4)
    assert (rate.this_second(), rate.per_second()) == (7, 0)
    clock.ms += 1
    rate.add(5)
    assert (rate.this_second(), rate.per_second()) == (5, 7)
    clock.ms += 2_000
    assert (rate.this_second(), rate.per_second()) == (0, 0)


# -- numbers over time


STEPS = st.lists(
    st.tuples(
        st.integers(-STEP_MS, 3 * STEP_MS) | st.just(POINTS * STEP_MS),
        st.integers(-5, 2**33),
        st.booleans(),
    ),
    max_size=80,
)


@given(STEPS)
def test_a_series_is_the_last_hour_of_what_was_put(steps):
    series, now_ms, latest = TimeSeries(NOW), NOW, NOW // STEP_MS
    slow = {}
    for after_ms, value, adds in steps:
        now_ms += after_ms
        latest = max(latest, now_ms // STEP_MS)
        before = slow.get(latest, 0) if adds else 0
        slow[latest] = min(before + max(0, value), UNKNOWN - 1)
        (series.add if adds else series.put)(now_ms, max(0, value) if adds else value)
        expected = [slow.get(step) for step in range(latest - POINTS + 1, latest + 1)]
        assert series.values(now_ms) == expected
        assert series.is_silent(now_ms) == (not any(expected))


def test_the_number_of_series_has_an_end():
    series = TimeSeriesTable()
    for number in range(MAX_SERIES + 5):
        series.get_or_add(f"t{number}", NOW)
        series.get_or_add("t0", NOW)  # somebody looks at it all the time
    assert len(series) == MAX_SERIES
    assert series.values("t0", NOW) is not None
    assert series.values("t1", NOW) is None
    series.add_growth(lambda _: 7, NOW)
    for number in range(2 * MAX_SERIES):
        series.get_or_add(f"u{number}", NOW)
    assert len(series._totals) <= MAX_SERIES


def test_amounts():
    series = TimeSeriesTable()
    series.put_all({"quiet": 0, "late": 9}, NOW)
    assert series.values("quiet", NOW) is None
    series.put_all({}, NOW + STEP_MS)
    assert series.values("late", NOW + STEP_MS)[-2:] == [9, 0]
    series.put_all({}, NOW + POINTS * STEP_MS)
    assert len(series) == 0


def test_totals_that_begin_again_are_no_loss():
    series = TimeSeriesTable()
    series.get_or_add("t", NOW)
    for total in (10, 14, 2, 3):
        series.add_growth(lambda _, total=total: total, NOW)
    assert series.values("t", NOW)[-1] == 5


async def test_the_views_have_an_hour(incident, monkeypatch):
    monkeypatch.setattr(
        incident.monitor, "mark_viewed", lambda: None
    )  # no sample but ours

    async def hour(view, name):
        found = await show_view(incident.broker, view, {"name": name}, None)
        assert found["step_ms"] == STEP_MS
        return found["hour"]

    await incident.send(2)
    incident.commit(0)
    assert await hour("group", "G") is None
    assert await hour("topic", "T") == [None] * POINTS  # from this look on
    incident.pass_time(20)
    await incident.send(3)
    incident.pass_time(20)
    incident.commit(5)
    incident.pass_time(20)
    known = [each for each in await hour("group", "G") if each is not None]
    assert known == [2, 5, 0, 0]
    assert sum(filter(None, await hour("topic", "T"))) == 3


# -- counters


class Row(NamedTuple):
    """The model of a row: all that was added, with the number of samples before."""

    began_ms: int
    began_after: int
    added: list[tuple[int, int]]


class AgainstModel(RuleBasedStateMachine):
    """A model that keeps each addition, and looks at all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = ManualClock()
        self.counters = CounterArray(self.clock.now_ms)
        self.snapshots = CounterSnapshots(LIMIT)
        self.taken_ms = [self.clock.now_ms()]
        self.rows: dict[int, Row] = {}

    def pick(self, number: int) -> int:
        return sorted(self.rows)[number % len(self.rows)]

    @rule()
    def begin(self) -> None:
        row = self.counters.add_row()
        assert row not in self.rows
        self.rows[row] = Row(self.clock.now_ms(), len(self.taken_ms) - 1, [])

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 9), value=st.integers(0, 2**40))
    def add(self, number: int, value: int) -> None:
        row = self.pick(number)
        self.counters.values[row] += value
        self.counters.times[row] += 1
        self.rows[row].added.append((len(self.taken_ms) - 1, value))

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 9))
    def end(self, number: int) -> None:
        row = self.pick(number)
        del self.rows[row]
        self.counters.remove_row(row)

    @rule(ms=st.integers(0, 10_000))
    def sample(self, ms: int) -> None:
        self.clock.ms += ms
        self.counters.take_snapshot(self.snapshots)
        self.taken_ms.append(self.clock.now_ms())

    @invariant()
    def each_row_is_that_of_the_model(self) -> None:
        assert len(self.counters) == len(self.rows)
        oldest = max(0, len(self.taken_ms) - LIMIT)
        for number, row in self.rows.items():
            is_older = oldest > row.began_after
            start = self.taken_ms[oldest] if is_older else row.began_ms
            new = [value for after, value in row.added if after >= oldest]
            found = self.counters.growth_of(self.snapshots, number)
            assert found == (sum(new), len(new), self.clock.now_ms() - start)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_row_is_idle_after_a_full_window_without_additions():
    clock = ManualClock()
    counters, snapshots = CounterArray(clock.now_ms), CounterSnapshots(LIMIT)
    quiet, busy = counters.add_row(), counters.add_row()
    for _ in range(LIMIT):
        assert not counters.is_idle(snapshots, quiet)
        counters.times[busy] += 1
        counters.take_snapshot(snapshots)
    young = counters.add_row()
    assert counters.is_idle(snapshots, quiet)
    assert not counters.is_idle(snapshots, busy)
    assert not counters.is_idle(snapshots, young)
