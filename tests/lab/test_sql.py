"""lab/sql.py over a small store: each figure is of a statement that ran."""

import sys
from importlib.util import find_spec

import pytest

if find_spec("duckdb") is None:
    pytest.skip("duckdb is missing", allow_module_level=True)

from lab import sql
from tests.spark.stores import orders, write_store

ROWS = 2_000


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def names(printed):
    """What stands before the columns of seconds."""
    return [line[:50].strip() for line in printed.splitlines() if " s  best " in line]


def test_statements_are_measured_in_a_database(tmp_path, capsys):
    write_store(tmp_path / "store", orders(ROWS))
    sql.statements(tmp_path / "store", ROWS, 1)
    found = names(capsys.readouterr().out)
    assert found[:3] == [
        "first question of all, nothing kept", "count by topic", "5 s of store time"
    ]  # fmt: skip
    assert set(found[3:]) == {"one key", *sql.OTHERS}


@pytest.mark.slow
def test_the_whole_measurement_of_a_store_that_it_makes(tmp_path, capsys, monkeypatch):
    given = ["--rows", str(ROWS), "--rounds", "1", "--data", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["sql.py", *given])
    code = sql.main()
    found = names(capsys.readouterr().out)
    assert [name for name in found if name.startswith("process: ")] == [
        "process: start to first row", "process: count by topic", "process: 5 s of time"
    ]  # fmt: skip
    assert code in (0, 1), "1: a limit of a quiet machine is not kept"


@pytest.mark.parametrize(
    ("seconds", "keeps"), [([0.3, 0.1, 0.2], True), ([0.3], False)]
)
def test_the_median_decides_about_a_limit(capsys, seconds, keeps):
    assert sql.show("count", seconds, 0.2) is keeps
    assert "limit 0.2" in capsys.readouterr().out
    assert sql.show("no limit", seconds)
