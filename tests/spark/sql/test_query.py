import json
import re
from pathlib import Path

import pytest

from rmq.core.errors import ConfigError
from rmq_spark.sql.database import SqlError
from rmq_spark.sql.query import query
from tests.spark.exports import export_all, exporter
from tests.spark.stores import orders

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ROOT = Path(__file__).resolve().parents[3]
DOCUMENT = ROOT / "docs" / "data/sql.md"
NOTEBOOK = ROOT / "examples" / "notebook" / "messages.ipynb"


@pytest.fixture
def store(writer):
    writer.append(orders(400))
    return str(writer.root)


def test_rows_are_an_arrow_table(store):
    table = query("SELECT topic, count(*) AS n FROM messages GROUP BY ALL", store)
    assert table.column_names == ["topic", "n"]
    assert sum(table["n"].to_pylist()) == 400


def test_several_stores(store):
    statement = "SELECT DISTINCT brokerName FROM messages ORDER BY 1"
    assert query(statement, f"a={store}", f"b={store}")[0].to_pylist() == ["a", "b"]
    with pytest.raises(ConfigError, match="two stores have the name broker-a"):
        query(statement, store, store)


def test_archive_and_log(store, writer, tmp_path):
    out = tmp_path / "out"
    export_all(exporter(writer, out))
    writer.append(orders(100, start=400))
    table = query("SELECT keys FROM everything", store, archive=str(out))
    assert {*table["keys"].to_pylist()} == {f"k{n}" for n in range(500)}
    assert len(table) == 500


def test_a_statement_without_rows_is_refused(store):
    with pytest.raises(SqlError, match="has no rows"):
        query("CREATE TABLE x AS SELECT 1", store)


def test_a_statement_is_one_statement(store):
    with pytest.raises(SqlError, match="one statement"):
        query("SELECT 1; SELECT 2", store)


@pytest.mark.slow
def test_the_example_of_the_manual_draws(store, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    (code,) = BLOCK.findall(DOCUMENT.read_text())
    exec(code.replace("/data/store", store), {})
    assert (tmp_path / "messages.png").stat().st_size > 1_000


@pytest.mark.slow
def test_the_notebook_draws_each_message(store, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.setenv("RMQ_STORE", store)
    monkeypatch.setenv("RMQ_PLOT", str(tmp_path / "messages.png"))
    values = {}
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            exec("".join(cell["source"]), values)
    assert values["busiest"] == values["topics"]["topic"].to_pylist()
    heights = [bar.get_height() for bar in values["axes"].patches]
    assert sum(heights) == sum(values["bottom"].values()) == 400
    assert (tmp_path / "messages.png").stat().st_size > 1_000
