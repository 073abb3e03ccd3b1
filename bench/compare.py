"""Compare results of bench/load/run.py by their ratios to the echo.

With one file, runs the load test and compares with it; a loss counts if a second run
has it too. Exit code 1 if a profile costs over 10 % more than in the older file, or is
missing; 2 if a result is void.

    python bench/compare.py OLDER.json [NEWER.json]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOSS_LIMIT = 0.10
RUN = Path(__file__).resolve().parent / "load" / "run.py"
RESULTS = Path(__file__).resolve().parent / "results"

Result = dict[str, Any]


class VoidError(Exception):
    """The echo of a result was too slow to judge by."""


def losses(older: Result, newer: Result) -> set[str]:
    """Print both ratios of each profile; the names of those that got worse."""
    if older["is_void"] or newer["is_void"]:
        raise VoidError
    lost = set()
    print(f"{'profile':<18}{'older':>9}{'newer':>9}{'change':>9}")
    for profile, figures in older["profiles"].items():
        if "ratio" not in figures:
            continue
        if profile not in newer["profiles"]:
            print(f"{profile:<18}{figures['ratio']:>9.2f}  missing")
            lost.add(profile)
            continue
        ratio = newer["profiles"][profile]["ratio"]
        change = ratio / figures["ratio"] - 1
        verdict = "  LOSS" if change > LOSS_LIMIT else ""
        if verdict:
            lost.add(profile)
        print(
            f"{profile:<18}{figures['ratio']:>9.2f}{ratio:>9.2f}{change:>+9.1%}{verdict}"
        )
    return lost


def run_again(older: Result) -> set[str]:
    """Measure twice at most; the profiles that got worse both times."""
    lost = set(older["profiles"])
    for attempt in ("first", "second"):
        path = RESULTS / f"check-{attempt}.json"
        path.unlink(missing_ok=True)  # that of an earlier check proves nothing
        subprocess.run([sys.executable, RUN, "--output", path], check=False)
        lost &= losses(older, json.loads(path.read_text()))
        if not lost:
            break
    return lost


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path)
    parser.add_argument("newer", type=Path, nargs="?")
    options = parser.parse_args()
    older = json.loads(options.older.read_text())
    try:
        if options.newer is None:
            lost = run_again(older)
        else:
            lost = losses(older, json.loads(options.newer.read_text()))
    except VoidError:
        print("one of the results is void: its echo was too slow")
        return 2
    return int(bool(lost))


if __name__ == "__main__":
    raise SystemExit(main())
