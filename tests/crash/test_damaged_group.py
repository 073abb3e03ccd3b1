"""Damage of real processes: nothing is lost, and all is logged.

`make lab NAME=damage` runs all rows; here are some.
"""

import pytest

from lab.damage import ROWS, run_row

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

CHOSEN = {
    "bit-master-first",
    "last-slave-together",
    "first-master-first",
    "state-copies-old-master-together",
    "pair-bit-master-first",
    "empty-field",
    "alone-entry",
    "alone-tables",
    "verify-own-offset",
}


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in CHOSEN], ids=str)
def test_nothing_is_lost(row):
    assert run_row(row, 0).faults == []
