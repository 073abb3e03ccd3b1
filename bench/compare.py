"""Compare results of bench/load/run.py by their ratios to the echo, or results of
lab/requests.py by their ratios to a plain send.

With one file, runs the same program and compares with it; a loss counts if a second run
has it too. Exit code 1 if a profile costs over 10 % more than in the older file (a
request over 15 %), or is missing; 2 if other processes disturbed one.

    python bench/compare.py OLDER.json [NEWER.json]
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOSS_LIMIT = 0.10
REQUEST_LOSS_LIMIT = 0.15
ROOT = Path(__file__).resolve().parents[1]
RUN = [str(ROOT / "bench/load/run.py"), "--memory", "fresh"]
RUN_REQUESTS = [str(ROOT / "lab/requests.py"), "--rounds", "5"]
RESULTS = Path(__file__).resolve().parent / "results"

Result = dict[str, Any]


def losses(older: Result, newer: Result) -> tuple[set[str], set[str]]:
    """Print both ratios of each profile; those that got worse, and the disturbed."""
    lost, disturbed = set(), set()
    limit = REQUEST_LOSS_LIMIT if is_of_requests(older) else LOSS_LIMIT
    print(f"{'profile':<30}{'older':>9}{'newer':>9}{'change':>9}")
    for profile, figures in older["profiles"].items():
        if "ratio" not in figures:
            continue
        if profile not in newer["profiles"]:
            print(f"{profile:<30}{figures['ratio']:>9.2f}  missing")
            lost.add(profile)
            continue
        now = newer["profiles"][profile]
        ratio = now["ratio"]
        change = ratio / figures["ratio"] - 1
        verdict = "  LOSS" if change > limit else ""
        if figures.get("is_disturbed") or now.get("is_disturbed"):
            verdict = "  DISTURBED"
            disturbed.add(profile)
        elif verdict:
            lost.add(profile)
        print(
            f"{profile:<30}{figures['ratio']:>9.2f}{ratio:>9.2f}{change:>+9.1%}{verdict}"
        )
    return lost, disturbed


def is_of_requests(result: Result) -> bool:
    """Whether lab/requests.py has measured it."""
    return result.get("unit") == "plain send"


def run_again(older: Result) -> tuple[set[str], set[str]]:
    """Measure twice at most; the profiles that got worse, or were disturbed, twice."""
    lost = disturbed = set(older["profiles"])
    for attempt in ("first", "second"):
        path = RESULTS / f"check-{attempt}.json"
        path.unlink(missing_ok=True)  # that of an earlier check proves nothing
        program = RUN_REQUESTS if is_of_requests(older) else RUN
        command = [sys.executable, *program, "--output", str(path)]
        subprocess.run(command, check=False, cwd=ROOT)
        worse, unclear = losses(older, json.loads(path.read_text()))
        lost, disturbed = lost & worse, disturbed & unclear
        if not lost and not disturbed:
            break
    return lost, disturbed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path)
    parser.add_argument("newer", type=Path, nargs="?")
    options = parser.parse_args()
    older = json.loads(options.older.read_text())
    if options.newer is None:
        lost, disturbed = run_again(older)
    else:
        lost, disturbed = losses(older, json.loads(options.newer.read_text()))
    if disturbed:
        print("other processes took over 10 % of the machine: run it again alone")
    return 1 if lost else 2 * bool(disturbed)


if __name__ == "__main__":
    raise SystemExit(main())
