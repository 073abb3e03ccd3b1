"""Tests that take long are found, whatever else the machine does."""

import os
import time

from tests import duration_gate
from tests.duration_gate import Stopwatch


def test_a_short_test_is_no_matter():
    watch = Stopwatch()
    sum(range(1000))
    assert watch.complaint() == ""


def test_work_is_found(monkeypatch):
    watch, end = Stopwatch(), time.process_time() + 0.02
    while time.process_time() < end:
        pass
    with monkeypatch.context() as patch:
        patch.setattr(duration_gate, "BUSY_LIMIT_S", 0.01)
        assert watch.complaint().startswith("ran for")


def test_sleep_is_found(monkeypatch):
    watch = Stopwatch()
    time.sleep(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(duration_gate, "IDLE_LIMIT_S", 0.01)
        assert watch.complaint().startswith("waited")


def test_a_child_is_no_sleep(monkeypatch):
    watch, used = Stopwatch(), list(os.times())
    used[2] += 1
    time.sleep(0.02)
    with monkeypatch.context() as patch:
        patch.setattr(duration_gate, "IDLE_LIMIT_S", 0.01)
        patch.setattr(duration_gate.os, "times", lambda: used)
        assert watch.complaint() == ""
        patch.setattr(duration_gate, "CHILDREN_LIMIT_S", 0.5)
        assert watch.complaint().startswith("its children ran")
