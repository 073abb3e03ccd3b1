"""Sums: what was added since the oldest sample, for rows that come and go."""

from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from rmq.observe.counters import Samples, Sums
from rmq.testing import ManualClock

LIMIT = 3


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
        self.sums = Sums(self.clock.now_ms)
        self.samples = Samples(LIMIT)
        self.taken_ms = [self.clock.now_ms()]
        self.rows: dict[int, Row] = {}

    def pick(self, number: int) -> int:
        return sorted(self.rows)[number % len(self.rows)]

    @rule()
    def begin(self) -> None:
        row = self.sums.begin()
        assert row not in self.rows
        self.rows[row] = Row(self.clock.now_ms(), len(self.taken_ms) - 1, [])

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 9), value=st.integers(0, 2**40))
    def add(self, number: int, value: int) -> None:
        row = self.pick(number)
        self.sums.values[row] += value
        self.sums.times[row] += 1
        self.rows[row].added.append((len(self.taken_ms) - 1, value))

    @precondition(lambda self: self.rows)
    @rule(number=st.integers(0, 9))
    def end(self, number: int) -> None:
        row = self.pick(number)
        del self.rows[row]
        self.sums.end(row)

    @rule(ms=st.integers(0, 10_000))
    def sample(self, ms: int) -> None:
        self.clock.ms += ms
        self.sums.sample(self.samples)
        self.taken_ms.append(self.clock.now_ms())

    @invariant()
    def each_row_is_that_of_the_model(self) -> None:
        assert len(self.sums) == len(self.rows)
        oldest = max(0, len(self.taken_ms) - LIMIT)
        for number, row in self.rows.items():
            is_older = oldest > row.began_after
            start = self.taken_ms[oldest] if is_older else row.began_ms
            new = [value for after, value in row.added if after >= oldest]
            found = self.sums.since(self.samples, number)
            assert found == (sum(new), len(new), self.clock.now_ms() - start)


TestAgainstModel = AgainstModel.TestCase
TestAgainstModel.settings = settings(max_examples=60, stateful_step_count=30)


def test_a_row_is_idle_after_a_full_window_without_additions():
    clock = ManualClock()
    sums, samples = Sums(clock.now_ms), Samples(LIMIT)
    quiet, busy = sums.begin(), sums.begin()
    for _ in range(LIMIT):
        assert not sums.is_idle(samples, quiet)
        sums.times[busy] += 1
        sums.sample(samples)
    young = sums.begin()
    assert sums.is_idle(samples, quiet)
    assert not sums.is_idle(samples, busy)
    assert not sums.is_idle(samples, young)
