"""Tests that take long are found, whatever else the machine does."""

import gc
import os
import time
from pathlib import Path

from tests import duration_gate
from tests.duration_gate import (
    BUSY_LIMIT_S,
    CHILDREN_LIMIT_S,
    GENERATED,
    IDLE_LIMIT_S,
    Stopwatch,
)

STYLE = Path(__file__).parents[2] / "STYLE.md"


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


def test_a_full_collection_is_that_of_all_tests_before(monkeypatch):
    left_by_others = [[each] for each in range(400_000)]
    watch, began = Stopwatch(), time.process_time()
    gc.collect()
    assert time.process_time() - began > 0.005
    with monkeypatch.context() as patch:
        patch.setattr(duration_gate, "BUSY_LIMIT_S", 0.004)
        assert watch.complaint() == ""
    assert len(left_by_others) == 400_000


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


def test_the_limits_are_those_of_the_style():
    text = " ".join(STYLE.read_text().split())
    assert f"{BUSY_LIMIT_S:g} s of its own processor time" in text
    assert f"{CHILDREN_LIMIT_S:g} s of its children's" in text
    assert f"{IDLE_LIMIT_S:g} s of waiting" in text
    assert GENERATED == 4
    assert "Generated examples have four times as long" in text
