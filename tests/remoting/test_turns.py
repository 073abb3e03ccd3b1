"""Turns: a task with much work lets others run."""

import pytest
from trio.testing import MockClock

from rmq.remoting.turns import TURN_S, TurnTaker

STEP_S = TURN_S / 3


@pytest.fixture
def steps(mock_clock: MockClock):
    """Ten steps, each of a third of a turn."""

    def steps():
        for _ in range(10):
            mock_clock.jump(STEP_S)
            yield
        return "done"

    return steps()


@pytest.fixture
def taken():
    return []


@pytest.fixture
def take_turns(mock_clock, taken):
    """Return a taker whose turns are recorded, made inside of the test's run."""

    async def next_turn():
        mock_clock.jump(1)
        taken.append(1)

    return lambda: TurnTaker(next_turn)


async def test_steps_of_a_generator_take_turns(mock_clock, steps, take_turns, taken):
    assert await take_turns().run_all(steps) == "done"
    assert len(taken) == 3


async def test_steps_of_an_iterator_take_turns(mock_clock, steps, take_turns, taken):
    await take_turns().run_each(steps)
    assert len(taken) == 3


async def test_the_time_of_others_does_not_count(mock_clock, take_turns, taken):
    turns = take_turns()
    mock_clock.jump(TURN_S)
    await turns()
    await turns()
    assert len(taken) == 1
