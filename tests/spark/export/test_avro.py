"""Avro bodies: both framings, folder and registry, bodies that strangers make."""

import decimal
import io
import json
import random
import struct
import threading
from contextlib import contextmanager
from datetime import UTC, date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pyarrow as pa
import pytest

pytest.importorskip("fastavro", reason="pip install 'rmq[avro]' for these tests")
pytest.importorskip("duckdb", reason="pip install 'rmq[sql]' for these tests")

from fastavro import parse_schema, schemaless_writer

from rmq.core.errors import ConfigError, ConnectFailed
from rmq_spark.export import avro
from rmq_spark.export.avro import AvroDecoder
from rmq_spark.export.body_columns import BodyParser
from rmq_spark.export.body_schema import Bodies, parse_fields

ORDER = {
    "type": "record",
    "name": "shop.Order",
    "fields": [
        {"name": "number", "type": "long"},
        {"name": "sku", "type": ["null", "string"]},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "parts", "type": {"type": "array", "items": "int"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal",
                                   "precision": 9, "scale": 2}},
    ],
}  # fmt: skip
VALUE = {
    "number": 1 << 40,
    "sku": "é",
    "day": date(2024, 2, 29),
    "at": datetime(2024, 1, 2, 3, 4, 5, 678, UTC),
    "parts": [1, 2],
    "price": decimal.Decimal("1.25"),
}
FIELDS = (
    "number bigint, sku string, day date, at timestamp, parts string, price double, "
    "new int"
)
NUMBER = {"type": "record", "name": "N", "fields": [{"name": "number", "type": "int"}]}
KNOWN_PRINT = bytes.fromhex("8f5c393f1ad57572")
"""Of the schema "int", as the specification's framing has it."""


def encoded(value=VALUE, schema=ORDER):
    data = io.BytesIO()
    schemaless_writer(data, parse_schema(schema), value)
    return data.getvalue()


def confluent(number, data):
    return b"\0" + number.to_bytes(4, "big") + data


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "17.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "int.avsc").write_text('"int"')
    return tmp_path


def single_object(texts, schema_number, data):
    """Framed with the fingerprint that the reader knows for a schema of the folder."""
    wanted = texts.by_id[schema_number]
    (key,) = (k for k, v in texts.by_fingerprint.items() if v is wanted)
    return b"\xc3\x01" + struct.pack("<Q", key) + data


def read(source, *bodies):
    texts, problems = AvroDecoder(str(source))(pa.array(bodies, pa.binary()))
    return texts.to_pylist(), problems.to_pylist()


def test_both_framings_become_columns(folder):
    texts = AvroDecoder(str(folder))
    bodies = [confluent(17, encoded()), single_object(texts, 17, encoded())]
    reader = BodyParser(
        Bodies("avro", parse_fields(FIELDS), schemas=str(folder)), keeps_body=False
    )
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    rows = reader.parse_batch(batch).rows.to_pylist()
    assert (
        rows
        == [
            VALUE | {"parts": "[1,2]", "price": 1.25, "new": None},
        ]
        * 2
    )


def test_the_fingerprint_is_that_of_the_specification(folder):
    found, problems = read(folder, b"\xc3\x01" + KNOWN_PRINT + encoded(21, "int"))
    assert (found, problems) == ([b"21"], [None])


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        (b"", "neither framing"),
        (b"\0\0\0", "neither framing"),
        (b"\xc3\x01\0", "neither framing"),
        (b"{}", "neither framing"),
        (confluent(18, b""), "Avro schema 18 is unknown"),
        (b"\xc3\x01" + bytes(8), "fingerprint 0000000000000000 is unknown"),
        (confluent(17, b""), "does not match its Avro schema"),
        (confluent(17, encoded()[:-1]), "does not match its Avro schema"),
        (confluent(17, encoded() + b"x"), "bytes follow"),
    ],
)
def test_what_cannot_be_read_is_a_problem_of_its_row(folder, body, problem):
    found, problems = read(folder, body, confluent(17, encoded()))
    assert problem in problems[0]
    assert found[0] is None
    assert problems[1] is None


@pytest.mark.parametrize("seed", range(4))
def test_damaged_bodies_are_problems_of_their_rows(folder, seed):
    chance = random.Random(seed)
    bodies = []
    for _ in range(500):
        data = bytearray(confluent(17, encoded()))
        for _ in range(chance.randrange(1, 4)):
            data[chance.randrange(5, len(data))] = chance.randrange(256)
        bodies.append(bytes(data[: chance.randrange(5, len(data) + 1)]))
    found, problems = read(folder, *bodies)
    assert [text is None for text in found] == [p is not None for p in problems]
    assert any(problems)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("{", "is no Avro schema"),
        ('"strange"', "is no Avro schema"),
        ('{"type": "record", "name": "a.L", "fields": [{"name": "next", '
         '"type": ["null", "L"]}]}', "contains itself"),
        ('{"type": "array", "items": "null"}', "take no bytes"),
        ('{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}',
         "take no bytes"),
    ],
)  # fmt: skip
def test_schemas_that_are_refused(tmp_path, schema, sentence):
    (tmp_path / "a.avsc").write_text(schema)
    with pytest.raises(ConfigError, match=sentence):
        AvroDecoder(str(tmp_path))


def test_a_folder_without_schemas_is_a_sentence(tmp_path):
    with pytest.raises(ConfigError, match=r"has no schemas, files \*.avsc"):
        AvroDecoder(str(tmp_path / "missing"))


@contextmanager
def registry(answers):
    """A registry with these schemas; the paths that were asked for."""
    asked = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            status, body = answers.get(self.path, (404, b"{}"))
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/", asked
        server.shutdown()


def test_a_registry_is_asked_once_for_each_number(monkeypatch):
    monkeypatch.setattr(avro, "MAX_UNKNOWN", 2)
    answers = {
        "/schemas/ids/7": (200, json.dumps({"schema": json.dumps(NUMBER)}).encode())
    }
    good = confluent(7, encoded({"number": 5}, NUMBER))
    unknown = [confluent(number, b"") for number in (1, 2, 1, 2, 3, 4)]
    with registry(answers) as (url, asked):
        found, problems = read(url, good, *unknown, good)
    assert found == [b'{"number":5}', *[None] * 6, b'{"number":5}']
    assert problems[5] == "Avro schema 3 is unknown"
    assert asked == [f"/schemas/ids/{number}" for number in (7, 1, 2)]


@pytest.mark.parametrize(
    "answer", [(500, b""), (200, b"["), (200, b"{}"), (200, b'{"schema": 1}')]
)
def test_a_registry_that_fails_quarantines_nothing(answer):
    problem = pytest.raises((ConnectFailed, ConfigError), match="/schemas/ids/7")
    with registry({"/schemas/ids/7": answer}) as (url, _), problem:
        read(url, confluent(7, b""))
    with pytest.raises(ConnectFailed, match="cannot reach the registry"):
        read(url, confluent(7, b""))
