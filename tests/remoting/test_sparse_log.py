"""Strangers cannot fill the log."""

import logging

from rmq.remoting.sparse_log import LINES, SparseLog


def record(second):
    made = logging.makeLogRecord({"msg": "closing %s", "args": ("it",)})
    made.created = float(second)
    return made


def test_a_second_has_its_lines_and_the_next_one_says_how_many_are_missing():
    sparse = SparseLog()
    assert [sparse.filter(record(7)) for _ in range(LINES + 3)].count(True) == LINES
    later = record(8)
    assert sparse.filter(later)
    assert later.getMessage() == "closing it (3 more lines were left out)"
    assert sparse.filter(record(8))
