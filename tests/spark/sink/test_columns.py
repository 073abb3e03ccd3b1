"""Columns of the sink: what Spark's types become, and faults of single rows."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from rmq_spark.sink.columns import (
    SINK_COLUMNS,
    check_schema,
    columns_table,
    sink_columns,
)

ENTRY = pa.struct({"key": pa.string(), "value": pa.binary()})


def converted(name, values, kind, skip=0):
    """A column as it is given, and cut out of a longer one."""
    batch = pa.record_batch({name: pa.array([*values[:skip], *values], kind)})
    columns, faults = sink_columns([name], batch.slice(skip))
    columns[name].validate(full=True)
    return columns[name].to_pylist(), faults


HEADERS = [
    [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    None,
    [],
    [None, {"key": None, "value": b"x"}, {"key": "c", "value": b"3"}],
]


@pytest.mark.parametrize("skip", [0, 1, 3])
def test_headers_of_kafka(skip):
    found, faults = converted("properties", HEADERS, pa.list_(ENTRY), skip)
    assert found == [
        [(b"a", b"1"), (b"b", None)],
        None,
        [],
        [(b"", None), (b"", b"x"), (b"c", b"3")],
    ]
    assert not faults


@pytest.mark.parametrize("skip", [0, 2])
def test_maps(skip):
    kind = pa.map_(pa.string(), pa.string())
    values = [[("a", "1"), ("b", None)], None, [("c", "ł")]]
    found, _ = converted("properties", values, kind, skip)
    assert found == [
        [(b"a", b"1"), (b"b", None)],
        None,
        [(b"c", "ł".encode())],
    ]


@pytest.mark.parametrize("skip", [0, 2])
def test_lists_of_keys(skip):
    values = [["a", "b"], None, [], ["a", None]]
    found, faults = converted("keys", values, pa.list_(pa.string()), skip)
    assert found[:3] == [b"a b", None, b""]
    assert faults == {3: "an element of keys is null"}


def test_texts_numbers_and_times():
    assert converted("body", ["ł", None], pa.string())[0] == ["ł".encode(), None]
    assert converted("body", [b"x"], pa.large_binary())[0] == [b"x"]
    assert converted("queueId", [7, None], pa.int16())[0] == [7, None]
    at = datetime(2026, 1, 2, 3, 4, 5, 678_900, tzinfo=UTC)
    ms = str(int(at.timestamp() * 1_000)).encode()
    kind = pa.timestamp("us", "UTC")
    assert converted("deliverTimestamp", [at, None], kind)[0] == [ms, None]
    assert converted("deliverTimestamp", [5], pa.int64())[0] == [b"5"]


def test_faults_of_rows():
    found, faults = converted("flag", [1, None, 1 << 31, -(1 << 31)], pa.int64())
    assert (found[:2], found[3]) == ([1, None], -(1 << 31))
    assert faults == {2: "its flag has more than 32 bits"}
    found, faults = converted("delayTimeLevel", [1, None, 0, 18, 19], pa.int32())
    assert (found[0], found[1], found[3]) == (b"1", None, b"18")
    assert faults.keys() == {2, 4}


def test_names_and_aliases():
    fields = [("VALUE", "binary"), ("Key", "string"), ("partition", "int")]
    assert check_schema(fields, "T") == ["body", "keys", "queueId"]
    table = columns_table()
    assert all(f"`{column.name}`" in table for column in SINK_COLUMNS)
