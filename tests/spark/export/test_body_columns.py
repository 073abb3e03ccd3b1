"""Bodies as columns: what fits, against a slow model; what leaves the table."""

import json
import math
import random
import re
from datetime import UTC, date, datetime

import pyarrow as pa
import pytest

pytest.importorskip("duckdb", reason="pip install 'rmq[sql]' for these tests")

from rmq_spark.export.body_columns import BodyParser
from rmq_spark.export.body_schema import TYPES, Bodies

ALL = Bodies("json", [(f"a {kind}", kind) for kind in TYPES])
NO_OBJECT = "the body is no JSON object"


def parse_bodies(bodies, *texts, keeps_body=False):
    batch = pa.RecordBatch.from_pydict(
        {"place": list(range(len(texts))), "body": pa.array(texts, pa.binary())}
    )
    reader = BodyParser(bodies, keeps_body=keeps_body)
    try:
        return reader.parse_batch(batch)
    finally:
        reader.close()


def one(kind, text):
    """The value of a column of this type for a JSON value; or the reason."""
    fitted = parse_bodies(Bodies("json", [("c", kind)]), b'{"c": %s}' % text.encode())
    if fitted.misfits:
        return fitted.quarantined["error"][0].as_py()
    return fitted.rows["c"][0].as_py()


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("boolean", "true", True),
        ("boolean", '"false"', False),
        ("int", "-2147483648", -(1 << 31)),
        ("bigint", "9223372036854775807", (1 << 63) - 1),
        ("bigint", '"12"', 12),
        ("float", "1.5e3", 1500.0),
        ("double", "-0.1", -0.1),
        ("double", "7", 7.0),
        ("string", '"a\\u0000\\u00e9"', "a\0é"),
        ("string", '{"b": [1]}', '{"b":[1]}'),
        ("string", "12", "12"),
        ("string", '""', ""),
        ("date", '"2024-02-29"', date(2024, 2, 29)),
        ("timestamp", '"2024-01-02T03:04:05.25+02:00"',
         datetime(2024, 1, 2, 1, 4, 5, 250_000, UTC)),
        ("timestamp", '"2024-01-02 03:04"', datetime(2024, 1, 2, 3, 4, tzinfo=UTC)),
        ("timestamp", "1700000000123",
         datetime(2023, 11, 14, 22, 13, 20, 123_000, UTC)),
        *((kind, "null", None) for kind in TYPES),
    ],
)  # fmt: skip
def test_values_that_fit(kind, text, value):
    assert one(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("boolean", "1"),
        ("boolean", '"yes"'),
        ("int", "2147483648"),
        ("int", "1.5"),
        ("bigint", "1e3"),
        ("bigint", "9223372036854775808"),
        ("bigint", '"x"'),
        ("bigint", "true"),
        ("bigint", '{"a": 1}'),
        ("float", "3.5e38"),
        ("double", "1e400"),
        ("double", "NaN"),
        ("double", '"inf"'),
        ("date", '"2023-02-29"'),
        ("date", '"infinity"'),
        ("date", "12"),
        ("timestamp", '"epoch"'),
        ("timestamp", '"2024-01-02 03:04:05 Europe/Berlin"'),
        ("timestamp", '"2024-13-02T03:04:05Z"'),
        ("timestamp", "99999999999999999"),
    ],
)
def test_values_that_do_not_fit(kind, text):
    assert one(kind, text) == f"column c is no {kind}"


@pytest.mark.parametrize(
    "body",
    [b"", None, b"[1]", b"12", b"null", b'"x"', b"{bad", b'{"c": 1} x', b"\xff",
     b'\xef\xbb\xbf{"c": 1}', b'{"c": "\\ud800"}', b'{"c": 1}\0'],
)  # fmt: skip
def test_a_body_that_is_no_object(body):
    fitted = parse_bodies(Bodies("json", [("c", "string")]), body)
    assert fitted.quarantined["error"].to_pylist() == [NO_OBJECT]
    assert fitted.rows.num_rows == 0


def test_rows_keep_their_order_and_misfits_their_bodies():
    bodies = Bodies("json", [("c", "int"), ("d", "string")])
    texts = [b'{"c": 1}', b'{"c": "x", "d": "y"}', b' {"d": "z", "e": 0}\n', b"-"]
    fitted = parse_bodies(bodies, *texts)
    assert fitted.rows.to_pylist() == [
        {"place": 0, "c": 1, "d": None},
        {"place": 2, "c": None, "d": "z"},
    ]
    assert fitted.quarantined.to_pylist() == [
        {"place": 1, "body": texts[1], "error": "column c is no int"},
        {"place": 3, "body": texts[3], "error": NO_OBJECT},
    ]
    assert (fitted.misfits, fitted.example) == (2, "column c is no int")


def test_misfits_stay_with_null():
    bodies = Bodies("json", [("c", "int"), ("d", "string")], on_error="null")
    fitted = parse_bodies(bodies, b'{"c": "x", "d": "y"}', b"-", keeps_body=True)
    assert fitted.rows.to_pylist() == [
        {"place": 0, "body": b'{"c": "x", "d": "y"}', "c": None, "d": "y"},
        {"place": 1, "body": b"-", "c": None, "d": None},
    ]
    assert (fitted.quarantined.num_rows, fitted.misfits) == (0, 2)


def test_any_name_is_a_name():
    names = ["a b", 'a"b', "a'b", "select", "$.x", "t0", "é"]
    bodies = Bodies("json", [(name, "bigint") for name in names])
    body = json.dumps({name: number for number, name in enumerate(names)}).encode()
    assert list(parse_bodies(bodies, body).rows.to_pylist()[0].values())[1:] == list(
        range(7)
    )


def test_deep_bodies_and_long_numbers_are_survived():
    bodies = Bodies("json", [("c", "string"), ("n", "bigint")])
    deep = b'{"c": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
    fitted = parse_bodies(bodies, deep, b'{"n": ' + b"9" * 1_000_000 + b"}")
    assert len(fitted.rows["c"][0].as_py()) == 2_000_000
    assert fitted.quarantined["error"].to_pylist() == ["column n is no bigint"]


class Misfit(Exception):
    pass


def model(kind, value):
    """What a column takes, value by value."""
    if value is None:
        return None
    if kind == "string":
        is_text = isinstance(value, str)
        return value if is_text else json.dumps(value, separators=(",", ":"))
    text = value if isinstance(value, str) else json.dumps(value)
    if kind == "boolean" and text in ("true", "false"):
        return text == "true"
    if kind in ("int", "bigint") and re.fullmatch(r"0|-?[1-9]\d*", text):
        bits = 31 if kind == "int" else 63
        if -(1 << bits) <= int(text) < 1 << bits:
            return int(text)
    if kind in ("float", "double") and re.fullmatch(r"-?\d+(\.\d+)?(e[+-]?\d+)?", text):
        number = pa.scalar(float(text)).cast(TYPES[kind]).as_py()
        if math.isfinite(number):
            return number
    if kind == "date" and re.fullmatch(r"\d{4}-\d\d-\d\d", text):
        return date.fromisoformat(text)
    if kind == "timestamp" and re.fullmatch(r"0|-?[1-9]\d{0,11}", text):
        return datetime.fromtimestamp(int(text) / 1000, UTC)
    raise Misfit


VALUES = (
    None, True, False, 0, -1, 7, 1 << 31, -(1 << 63), 1 << 63, 1.5, -2.25, 1e300,
    "", "x", "true", "12", "012", "1.5", "2024-02-29", "é\n\"'", [], [1, {"a": None}],
    {"b": "c"},
)  # fmt: skip


@pytest.mark.parametrize("seed", range(3))
def test_random_bodies_give_what_the_model_gives(seed):
    chance = random.Random(seed)
    rows = []
    for _ in range(300):
        names = chance.sample(ALL.fields, chance.randrange(4))
        rows.append({name: chance.choice(VALUES) for name, _ in names} | {"other": 1})
    good, bad = [], []
    for place, row in enumerate(rows):
        try:
            values = {name: model(kind, row.get(name)) for name, kind in ALL.fields}
            good.append({"place": place, **values})
        except Misfit:
            bad.append(place)
    fitted = parse_bodies(ALL, *(json.dumps(row).encode() for row in rows))
    assert fitted.rows.to_pylist() == good
    assert fitted.quarantined["place"].to_pylist() == bad
    assert good
    assert bad
