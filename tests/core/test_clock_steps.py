"""ClockSteps: what a step is, who is notified, and which records are corrected."""

import pytest

from rmq.core.clock_steps import MAX_STEPS, ClockSteps
from rmq.testing import ManualClock


@pytest.fixture
def clock():
    return ManualClock()


@pytest.mark.parametrize("step_s", [-3_600, -300, -1, 1, 300, 3_600])
def test_a_step_is_noticed_once(clock, step_s, caplog):
    steps, seen = ClockSteps(clock), []
    steps.callbacks.append(seen.append)
    clock.ms += 60_000
    assert steps.notice_step() == 0
    clock.set_back_ms -= step_s * 1_000
    clock.ms += 900
    assert steps.notice_step() == step_s * 1_000
    assert steps.notice_step() == 0
    assert seen == [step_s * 1_000]
    assert f"the clock jumped by {step_s} s" in caplog.text


def test_a_clock_that_is_slewed_makes_no_step(clock):
    steps = ClockSteps(clock)
    for _ in range(1_000):
        clock.ms += 1_000
        clock.set_back_ms += 400
        assert steps.notice_step() == 0


def test_records_from_before_a_step_back_are_corrected(clock):
    end = [1_000]
    steps = ClockSteps(clock, lambda: end[0])
    stored_ms = clock.now_ms()
    clock.ms += 800
    end[0] = 2_000
    clock.set_back_ms = 300_000
    steps.notice_step()
    assert steps.store_time(stored_ms, 999) == stored_ms - 300_000
    assert steps.store_time(stored_ms + 1, 1_500) == stored_ms + 1 - 300_000
    new_ms = clock.now_ms()
    assert steps.store_time(new_ms, 1_999) == new_ms
    assert steps.store_time(new_ms, 2_000) == new_ms


def test_a_step_forward_corrects_nothing(clock):
    """It may be a machine that was paused: the time has passed."""
    steps = ClockSteps(clock, lambda: 10)
    stored_ms = clock.now_ms()
    clock.set_back_ms = -300_000
    steps.notice_step()
    assert steps.store_time(stored_ms, 5) == stored_ms


def test_a_clock_that_never_rests_uses_no_memory(clock):
    steps = ClockSteps(clock, lambda: 10)
    stored_ms = clock.now_ms()
    for _ in range(2 * MAX_STEPS):
        clock.set_back_ms += 1_000
        steps.notice_step()
    assert steps.store_time(stored_ms, 5) == stored_ms - MAX_STEPS * 1_000
