"""lab/spark/run.py: its ratios to Parquet, and a small run of the whole of it."""

from importlib.util import find_spec

import pytest

if find_spec("pyarrow") is None:
    pytest.skip("pyarrow is missing", allow_module_level=True)

from lab.spark import run as spark_bench
from lab.spark.run import ALL_COLUMNS, FLOOR, FOLLOW, PARQUET, SEVEN, Round

ROWS = 2_000


def cells(lines):
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]


def test_ratios_are_those_of_one_round():
    """A round beside other programs takes longer, for both: its ratio stays."""
    results = {
        ALL_COLUMNS: [Round(1, 3, 1), Round(4, 12, 4), Round(1, 5, 3)],
        PARQUET: [Round(1, 2, 0), Round(4, 8, 0), Round(1, 2, 0)],
    }
    title, _, scan, parquet = cells(spark_bench.table(results, 1_000_000))
    assert title[-2:] == ["x Parquet", "Python x Parquet"]
    assert scan == [
        ALL_COLUMNS, "1,000", "5.00", "3.00", "8.00", "2.00 (goal 2)", "0.50 (goal 0.5)"
    ]  # fmt: skip
    assert parquet[-2:] == ["1.00", "0.00"]


def test_rounds_before_the_fourth_are_not_counted(monkeypatch, capsys):
    clock = iter(range(1_000))
    monkeypatch.setattr(spark_bench, "cpu_seconds", lambda: (float(next(clock)), 0.0))
    calls = []
    cases = [(name, lambda n=name: calls.append(n)) for name in (SEVEN, PARQUET)]
    spark_bench.measure(cases, ROWS, 2)
    assert calls == [SEVEN, PARQUET] * 5, "in turns"
    assert "1.00 (goal 1.05)" in capsys.readouterr().out


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_everything_is_measured(tmp_path, capsys):
    pytest.importorskip("pyspark")
    spark_bench.run(tmp_path, ROWS, 1, warm_ups=0)
    said = capsys.readouterr().out
    found = [row[0] for row in cells(said.splitlines()) if len(row) == 7]
    assert found.count(PARQUET) == 2
    assert {ALL_COLUMNS, SEVEN, FOLLOW, "Spark's partitionBy writer"} <= set(found)
    assert f"all columns, {FLOOR}" in found
    assert "most memory of a worker" in said
