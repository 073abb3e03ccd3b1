"""Damaged disks in groups of real processes: each row has to lose nothing.

Brokers take messages and are killed. Files of one of them are damaged: its log, a
queue, a table, or the state of the controller. All start again, in the order of the
row. The row is good if the brokers serve within 60 s, all of them have everything that
was acknowledged, and a log line names the damage.

    python lab/damage.py [--seeds 3] [--row bit-slave-first] [--kinds rmq,Java]
"""

import argparse
import itertools
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from lab.damaged_groups import Row, run_row
from lab.damages import TABLES

ORDERS = "first", "together", "last"
MEMBERS = "master", "slave"

ROWS = [
    *(
        Row(damage, victim, order)
        for damage, victim, order in itertools.product(("bit", "last"), MEMBERS, ORDERS)
    ),
    *(Row(damage, "master", "first") for damage in ("zeros", "first", "middle")),
    Row("short", "slave", "first"),
    Row("field", "master", "first"),
    *(Row("bit", victim, "first", "SYNC_FLUSH") for victim in MEMBERS),
    Row("last", "master", "together", "SYNC_FLUSH"),
    *(
        Row(damage, victim, "first", kind="state")
        for damage, victim in itertools.product(
            ("copy-old", "copy-gone", "copies-gone"), MEMBERS
        )
    ),
    *(
        Row(damage, "master", "first", kind="state")
        for damage in ("copy-short", "copy-bit")
    ),
    Row("copies-old", "master", "together", kind="state"),
    *(
        Row(damage, victim, "first", kind="pair")
        for damage, victim in itertools.product(("bit", "last", "first"), MEMBERS)
    ),
    *(Row("bit", "master", order, kind="pair") for order in ORDERS[1:]),
    *(Row(damage, kind="empty") for damage in ("old", "field")),
    *(Row(damage, kind="alone") for damage in ("entry", "tags", *TABLES)),
    Row("own-offset", kind="verify"),
]


def chosen_rows(name: str | None) -> list[Row]:
    """Return the rows of which the name begins like this."""
    found = [row for row in ROWS if row.name.startswith(name or "")]
    if not found:
        raise SystemExit(f"rows: {', '.join(row.name for row in ROWS)}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first one")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--row", help="the beginning of names")
    parser.add_argument("--kinds", help="of the first and the other, as rmq,Java")
    chosen = parser.parse_args()
    kinds = chosen.kinds.split(",") if chosen.kinds else ()
    bad = 0
    for row in chosen_rows(chosen.row):
        for seed in range(chosen.seed, chosen.seed + chosen.seeds):
            began = time.monotonic()
            result = run_row(row, seed, kinds)
            bad += bool(result.faults)
            state = "; ".join(result.faults[:3]) or "good"
            print(
                f"{row.name:30} {seed}  served after {result.served_s:4.1f} s  "
                f"({time.monotonic() - began:.0f} s)  {result.damage}: {state}",
                flush=True,
            )
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
