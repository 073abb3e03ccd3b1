"""Alarm: one task, woken at the earliest time that anybody asked for."""

import math

import pytest
import trio

from rmq.remoting.alarm import Alarm
from rmq.remoting.loop_clock import now_ms


@pytest.fixture
def alarm():
    return Alarm(now_ms)


@pytest.fixture
def wakes(alarm, nursery):
    """Return the times, in ms, at which the task of the alarm woke up."""
    times = []

    async def task():
        while True:
            await alarm.wait()
            times.append(now_ms())

    nursery.start_soon(task)
    return times


async def test_nobody_wakes_it_if_nobody_asks(wakes, autojump_clock):
    await trio.sleep(10_000)
    assert wakes == []


async def test_it_wakes_at_the_earliest_time(alarm, wakes, autojump_clock):
    for at_ms in (9_000, 5_000, 7_000):
        alarm.wake_at(at_ms)
        await trio.sleep(0.001)
    await trio.sleep(20)
    assert wakes == [5_000], "the task asks again for what it leaves"


async def test_a_time_that_is_over_wakes_it_at_once(alarm, wakes, autojump_clock):
    await trio.sleep(1)
    alarm.wake_at(0)
    await trio.testing.wait_all_tasks_blocked()
    assert wakes == [1_000]
    assert alarm.at_ms == math.inf


async def test_what_is_asked_before_it_waits_is_kept(alarm, nursery, autojump_clock):
    alarm.wake_at(3_000)
    await trio.sleep(1)
    await alarm.wait()
    assert now_ms() == 3_000


async def test_it_does_not_wake_before_its_time(alarm, wakes, mock_clock):
    """Milliseconds are rounded down: a thousandth too early would be for nothing."""
    mock_clock.jump(0.0006)
    alarm.wake_at(2)
    await trio.testing.wait_all_tasks_blocked()
    mock_clock.jump(0.0013)
    await trio.testing.wait_all_tasks_blocked()
    assert wakes == []
    mock_clock.jump(0.0008)
    await trio.testing.wait_all_tasks_blocked()
    assert wakes == [2]
