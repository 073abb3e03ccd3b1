import csv
import io
import json

import pyarrow.parquet as pq
import pytest

from rmq.core.errors import StoreError
from rmq_spark.sql import output
from rmq_spark.sql.output import write_parquet, write_rows
from tests.spark.stores import orders

KINDS = """
    SELECT 1 AS whole, 1.5::DECIMAL(5, 2) AS exact, 'nan'::FLOAT AS nan, TRUE AS flag,
        sum(a) AS large, [1, NULL] AS list, MAP {'k': 'v'} AS map,
        '\\xff'::BLOB AS bytes,
        TIMESTAMPTZ '2025-11-13 02:14:00.120Z' AS moment, TIME '10:00' AS hour,
        DATE '2025-11-13' AS day, NULL AS nothing, 'x' AS whole
    FROM range(3) t(a)
"""


@pytest.fixture
def text(writer, opened):
    """The rows of a statement in a format."""
    writer.append(orders(100))
    database = opened(a=writer.root)

    def call(statement, form):
        out = io.StringIO(newline="")
        write_rows(database.run(statement), form, out)
        return out.getvalue()

    call.database = database
    return call


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("form", ["json", "jsonl"])
def test_each_kind_of_value_is_json(text, form):
    shown = text(KINDS, form)
    (row,) = json.loads(shown) if form == "json" else [json.loads(shown)]
    assert row == {
        "whole": 1, "exact": 1.5, "nan": None, "flag": True, "large": 3,
        "list": [1, None], "map": {"k": "v"}, "bytes": "\\xff",
        "moment": "2025-11-13T02:14:00.120Z", "hour": "10:00:00", "day": "2025-11-13",
        "nothing": None, "whole_1": "x",
    }  # fmt: skip


def test_each_kind_of_value_is_csv(text):
    names, row = csv.reader(io.StringIO(text(KINDS, "csv")))
    assert names[:4] == ["whole", "exact", "nan", "flag"]
    assert row == [
        "1", "1.5", "", "true", "3", "[1, null]", '{"k": "v"}', "\\xff",
        "2025-11-13T02:14:00.120Z", "10:00:00", "2025-11-13", "", "x",
    ]  # fmt: skip


def test_csv_quotes_what_needs_it(text):
    shown = text("SELECT 'a,\"b\"' AS x, E'1\\n2' AS y", "csv")
    assert list(csv.reader(io.StringIO(shown, newline=""))) == [
        ["x", "y"],
        ['a,"b"', "1\n2"],
    ]


@pytest.mark.parametrize(
    ("form", "shown"), [("json", "[]\n"), ("jsonl", ""), ("csv", "topic\n")]
)
def test_no_rows_are_valid_too(text, form, shown):
    assert text("SELECT topic FROM messages WHERE queueId = 99", form) == shown


def test_many_rows_are_one_document(text):
    shown = text("SELECT i FROM range(20000) t(i)", "json")
    assert [row["i"] for row in json.loads(shown)] == list(range(20_000))


def test_a_table_has_aligned_columns_named_as_in_sql(text):
    lines = text("SELECT topic, queueId FROM messages LIMIT 2", "table").splitlines()
    assert lines == [
        "topic      queueId", "orders_00        0", "orders_03        0",
    ]  # fmt: skip


def test_a_table_says_what_it_does_not_show(text, monkeypatch):
    monkeypatch.setenv("COLUMNS", "30")
    monkeypatch.setattr(output, "SHOWN_ROWS", 10)
    terminal = Terminal()
    result = text.database.run("SELECT topic, keys, tags, body FROM messages")
    write_rows(result, "table", terminal)
    *table, rows, columns = terminal.getvalue().splitlines()
    assert len(table) == 11
    assert all(len(line) <= 30 for line in table)
    assert rows.startswith("only the first 10 rows")
    assert columns == "columns that do not fit: body"


def test_a_narrow_table_has_what_people_look_for(text, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    terminal = Terminal()
    result = text.database.run("SELECT * FROM orders_00 LIMIT 3")
    write_rows(result, "table", terminal)
    titles, *_, rest = terminal.getvalue().splitlines()
    assert {"queueId", "queueOffset", "keys", "text"} <= set(titles.split())
    assert rest.startswith("columns that do not fit: ")
    assert "body" in rest


def test_foreign_text_does_not_drive_a_terminal(text):
    for form in ("table", "csv", "json", "jsonl"):
        terminal = Terminal()
        result = text.database.run("SELECT chr(27) || '[2J' || chr(8238) AS x")
        write_rows(result, form, terminal)
        shown = terminal.getvalue()
        assert "\x1b" not in shown
        assert "\u202e" not in shown


def test_parquet_has_the_values_as_they_are(text, tmp_path):
    path = tmp_path / "out.parquet"
    write_parquet(text.database.run("SELECT * FROM orders_00"), path)
    table = pq.read_table(path)
    assert table.num_rows == 25
    assert str(table.schema.field("storeTimestamp").type) == "timestamp[us, tz=UTC]"
    assert dict(table["properties"][0].as_py())["WAIT"] == "true"
    assert list(tmp_path.glob(".*")) == []


def test_a_file_that_cannot_be_written_is_a_sentence(text, tmp_path):
    path = tmp_path / "none" / "out.parquet"
    with pytest.raises(StoreError, match=r"^cannot write .*: No such file"):
        write_parquet(text.database.run("SELECT 1 AS a"), path)


def test_a_statement_that_fails_leaves_no_file(text, tmp_path):
    path = tmp_path / "out.parquet"
    statement = (
        "SELECT CASE WHEN i = 90000 THEN error('no') ELSE i END FROM range(99999) t(i)"
    )
    with pytest.raises(Exception, match="no"):
        write_parquet(text.database.run(statement), path)
    assert not path.exists()
    assert list(tmp_path.glob(".*")) == []
