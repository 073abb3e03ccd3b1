"""A damaged broker of rmq heals from a broker of Java, in a group with a controller."""

import pytest

from lab.damage import ROWS, run_row

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.mark.parametrize("name", ["bit-master-last", "last-master-last"])
def test_a_member_heals_from_a_broker_of_java(name):
    [row] = [row for row in ROWS if row.name == name]
    assert run_row(row, 0, ("rmq", "Java")).faults == []
