"""Compare two result files of bench/load/run.py by their ratios to the echo.

Exit code 1 if a profile of the newer file costs over 10 % more than in the older one,
or is missing from it; 2 if one of the files is void.

    python bench/compare.py OLDER.json NEWER.json
"""

import argparse
import json
from pathlib import Path

LOSS_LIMIT = 0.10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("older", type=Path)
    parser.add_argument("newer", type=Path)
    options = parser.parse_args()
    older, newer = (json.loads(p.read_text()) for p in (options.older, options.newer))
    if older["is_void"] or newer["is_void"]:
        print("one of the files is void: its echo was too slow")
        return 2
    failed = False
    print(f"{'profile':<18}{'older':>9}{'newer':>9}{'change':>9}")
    for profile, figures in older["profiles"].items():
        if "ratio" not in figures:
            continue
        if profile not in newer["profiles"]:
            print(f"{profile:<18}{figures['ratio']:>9.2f}  missing")
            failed = True
            continue
        ratio = newer["profiles"][profile]["ratio"]
        change = ratio / figures["ratio"] - 1
        verdict = "  LOSS" if change > LOSS_LIMIT else ""
        failed |= bool(verdict)
        print(
            f"{profile:<18}{figures['ratio']:>9.2f}{ratio:>9.2f}{change:>+9.1%}{verdict}"
        )
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
