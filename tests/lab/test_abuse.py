"""The abuse laboratory: verdicts, and one short attack."""

import argparse
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOUND = {
    "quiet": {"p99_ms": 1.0},
    "under_attack": {"p99_ms": 2.9, "errors": []},
    "start_mib": 50,
    "peak_mib": 100,
    "log_kib": 1,
    "is_alive": True,
    "attacker": 0,
}


@pytest.fixture(scope="module")
def abuse():
    """The laboratory, imported as the script is that it is."""
    folders = [str(ROOT / "lab"), str(ROOT / "bench" / "load")]
    sys.path[:0] = folders
    import abuse

    yield abuse
    for folder in folders:
        sys.path.remove(folder)


def test_a_sound_row_has_no_fault(abuse):
    assert abuse.faults_of(SOUND) == []


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"is_alive": False}, "ended"),
        ({"attacker": 1}, "attacker"),
        (
            {"under_attack": {"p99_ms": 2.9, "errors": ["lost"]}},
            "1 errors, first: lost",
        ),
        ({"under_attack": {"p99_ms": 3.1, "errors": []}}, "over 3x"),
        ({"under_attack": {"p99_ms": float("inf"), "errors": []}}, "over 20 ms"),
        ({"peak_mib": 500}, "450 MiB more"),
        ({"log_kib": 3000}, "3000 KiB of log"),
    ],
)
def test_each_fault_is_named(abuse, change, word):
    assert word in "; ".join(abuse.faults_of(SOUND | change))


def test_a_resource_stands_for_its_attacks(abuse):
    assert abuse.chosen("buffers,idle")[-2:] == ["never-reads", "idle"]
    with pytest.raises(argparse.ArgumentTypeError, match="'moon'"):
        abuse.chosen("moon")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_an_attack_is_measured():
    command = [sys.executable, "lab/abuse.py", "--seconds=1", "--attacks=resets"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert "resets" in done.stdout, done.stderr
    assert "errors" not in done.stdout
