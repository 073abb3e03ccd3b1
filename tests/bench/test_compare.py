"""bench/compare.py finds what got slower against the echo."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

COMPARE = Path(__file__).resolve().parents[2] / "bench" / "compare.py"


def result(*, is_disturbed=False, unit="echo", **ratios):
    profiles = {
        name: {"ratio": ratio, "is_disturbed": is_disturbed}
        for name, ratio in ratios.items()
    }
    return {"profiles": profiles, "unit": unit}


@pytest.mark.parametrize(
    ("newer", "code", "said"),
    [
        (result(send=4.3, pull=2.0), 0, "+7.5%"),
        (result(send=4.5, pull=2.0), 1, "LOSS"),
        (result(send=3.0), 1, "missing"),
        (result(send=9.0, pull=1.0, is_disturbed=True), 2, "DISTURBED"),
    ],
    ids=["noise", "loss", "missing", "disturbed"],
)
def test_two_results(tmp_path, newer, code, said):
    compare(tmp_path, result(send=4.0, pull=2.0), newer, code, said)


@pytest.mark.parametrize(("ratio", "code"), [(4.5, 0), (4.7, 1)])
def test_requests_may_get_15_percent_worse(tmp_path, ratio, code):
    unit = "plain send"
    older, newer = result(POP=4.0, unit=unit), result(POP=ratio, unit=unit)
    compare(tmp_path, older, newer, code, "POP")


def compare(tmp_path, older, newer, code, said):
    paths = [tmp_path / "older.json", tmp_path / "newer.json"]
    for path, content in zip(paths, (older, newer), strict=True):
        path.write_text(json.dumps(content))
    done = subprocess.run(
        [sys.executable, COMPARE, *paths], capture_output=True, text=True, check=False
    )
    assert done.returncode == code
    assert said in done.stdout
