"""Sends beside a program that keeps the disk busy."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench.load import disk_hog
from lab import busy_disk

HOG = Path(disk_hog.__file__)
QUIET = {"p99_us": 1_000.0, "max_us": 5_000.0}


@pytest.mark.parametrize(
    ("p99_us", "max_us", "is_fine"),
    [(3_000, 50_000, True), (3_001, 50_000, False), (1_000, 50_001, False)],
)
def test_the_limits(p99_us, max_us, is_fine):
    figures = {"p99_us": p99_us, "max_us": max_us}
    assert busy_disk.is_fine(figures, QUIET) == is_fine


def test_a_row_compares_with_the_quiet_disk():
    more = {"rate": 5e5, "p50_us": 100.0, "p999_us": 2e3}
    disks = {
        "quiet": QUIET | more | {"other_mb_per_s": 0.0},
        "read": QUIET | more | {"p99_us": 4_000.0, "other_mb_per_s": 499.6},
    }
    quiet, read = busy_disk.rows({"SYNC_FLUSH": disks})
    assert quiet[6:] == ("1.0", "2,000", "5.0", "")
    assert read[2:] == ("500", "500,000", "100", "4,000", "4.0", "2,000", "5.0", "NO")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["read", "write"])
def test_the_other_program_keeps_to_its_rate(disk_path, kind):
    command = [sys.executable, HOG, kind, disk_path / "file", "--file-mib", "8"]
    done = subprocess.run(
        [*command, "--mb-per-s", "20", "--seconds", "1"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    reached = json.loads(done.stdout.splitlines()[1])
    assert reached["kind"] == kind
    assert 5 < reached["mb_per_s"] < 25
