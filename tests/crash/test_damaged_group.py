"""Groups of real processes with one damaged log: nothing is lost, and all is logged.

`make lab NAME=damage` runs all rows; here are some.
"""

import pytest

from lab.damage import ROWS, run_row

pytestmark = [pytest.mark.crash, pytest.mark.timeout(300)]

CHOSEN = "bit-master-first", "last-slave-together", "first-master-first"


@pytest.mark.parametrize("row", [row for row in ROWS if row.name in CHOSEN], ids=str)
def test_a_damaged_member_heals(row):
    assert run_row(row, 0).faults == []
