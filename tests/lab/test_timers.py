"""The benchmark of timed messages against a real broker, with few of them."""

import sys

import pytest

from bench.load import run
from lab import timers


@pytest.mark.slow
def test_all_figures_are_found(monkeypatch, capsys):
    run.build()
    monkeypatch.setattr(timers, "MARGIN_S", 3.0)
    monkeypatch.setattr(timers, "IDLE_ROUNDS", 1)
    sizes = (
        "--messages=200", "--waiting=400", "--rate=100", "--seconds=1",
        "--storm-seconds=0.2",
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["timers.py", *sizes])
    timers.main()
    lines = capsys.readouterr().out.splitlines()
    figures = {line[6:56].strip(): line[56:].strip() for line in lines}
    assert len(figures) == 13
    earliest = next(name for name in figures if name.endswith("earliest"))
    assert float(figures[earliest]) >= 0
    assert figures["of it, not delivered after these sends"] == "0"
