"""Turns that others disturb are played again; memory that is held is given back."""

import pytest

from bench.load import memory, run, turns


class Machine:
    """Other processes that take what the test says, one turn after the other."""

    def __init__(self, *shares):
        self.shares = list(shares)
        self.played = 0

    def watch(self, pids):
        assert pids == [7]
        return self

    def share(self):
        return self.shares.pop(0)

    def play(self):
        self.played += 1
        return {"broker": {"rate": float(self.played)}}


@pytest.mark.parametrize(
    ("shares", "played", "best"),
    [
        ([0.02], 1, 1),
        ([0.4, 0.1], 2, 2),
        ([0.4, 0.2, 0.3, 0.5], 4, 2),
    ],
    ids=["quiet", "once disturbed", "never quiet"],
)
def test_a_disturbed_turn_is_played_again(shares, played, best):
    machine = Machine(*shares)
    figures, share = turns.quiet(machine.play, [7], machine.watch)
    assert machine.played == played
    assert (figures["broker"]["rate"], share) == (best, min(shares))


def turn(echo, broker):
    figures = {"rate": 1.0, "p50_us": 1.0}
    return {
        "echo": figures | {"s_per_million": echo},
        "broker": figures | {"s_per_million": broker},
    }


def test_a_ratio_is_one_of_a_turn():
    """An echo that a slow moment hits is compared with the broker of that moment."""
    quiet, slow = (turn(0.2, 1.0), 0.0), (turn(0.8, 4.0), 0.3)
    profiles = run.summary({"a": [quiet, slow, slow], "b": [quiet, quiet, slow]})
    assert profiles["a"]["ratio"] == profiles["b"]["ratio"] == pytest.approx(5)
    assert profiles["a"]["is_disturbed"]
    assert not profiles["b"]["is_disturbed"]


def test_a_table_says_what_a_page_costs_and_what_was_disturbed(capsys):
    figures = {
        "rate": 1.0, "s_per_million": 1.0, "p50_us": 1.0, "p99_us": 1.0,
        "p999_us": 1.0, "generator_share": 0.5, "major_faults": 0,
    }  # fmt: skip
    case = {"echo": figures, "broker": figures, "ratio": 1.0, "others_share": 0.25}
    tables = {
        kind: {"send": {**case, "is_disturbed": kind == "warm"}} for kind in run.MEMORY
    }
    pages = {"fresh": 3.25, "warm": 0.75}
    run.show({"process": {}, "memory": tables, "page_us": pages})
    fresh, warm = capsys.readouterr().out.split("warm memory: 0.75 us")
    assert "fresh memory: 3.25 us of CPU for a page" in fresh
    assert "DISTURBED" not in fresh
    assert "DISTURBED: others took 25%" in warm


def test_others_are_what_is_left_of_the_machine():
    assert turns.kernel_threads_seconds() >= 0
    assert 0 <= turns.OtherProcesses([]).share() < 10


@pytest.mark.parametrize(
    ("available", "total", "expected"),
    [
        (22_000, 24_000, (20_976, 18_400)),
        (8_000, 8_000, (6_976, 4_928)),
        (3_000, 64_000, (0, 0)),
    ],
)
def test_memory_that_others_need_is_left(available, total, expected):
    assert memory.amounts(available, total) == expected


def test_held_memory_is_given_back(monkeypatch):
    monkeypatch.setattr(memory, "amounts", lambda *_: (3, 2))
    with memory.held() as is_held:
        assert is_held
    monkeypatch.setattr(memory, "amounts", lambda *_: (0, 0))
    with memory.held() as is_held:
        assert not is_held


@pytest.mark.slow
def test_a_page_of_a_new_file_costs_something(tmp_path):
    assert memory.page_us(str(tmp_path)) > 0
