"""A dump has what Java served."""

import base64
import hashlib
import json

import pytest
from click.testing import CliRunner

from rmq.cli import main
from rmq.tools.dump import Choice, dump
from rmq.tools.store_files import StoreFiles
from tests.golden.recordings import read_rows


@pytest.fixture
def served(golden):
    rows = read_rows(golden / "stores" / "store-plain.expected.jsonl")
    return [row for row in rows if row["kind"] == "message"]


def body(record):
    if "body" in record:
        return record["body"].encode()
    return base64.b64decode(record["bodyBase64"])


def test_all_messages_by_queue(unpack, served):
    store = StoreFiles(unpack("store-plain"))
    for topic in ("GoldenA", "GoldenB"):
        rows = [row for row in served if row["topic"] == topic]
        rows.sort(key=lambda row: (row["queueId"], row["queueOffset"]))
        records = list(dump(store, Choice(topic=topic)))
        assert len(records) == len(rows) > 1000
        for record, row in zip(records, rows, strict=True):
            for field in ("queueId", "queueOffset", "bornTimestamp", "sysFlag"):
                assert record[field] == row[field]
            assert record["commitLogOffset"] == row["commitLogOffset"]
            assert hashlib.sha256(body(record)).hexdigest() == row["bodySha256"]


def test_one_record_by_offset(unpack, served):
    store = StoreFiles(unpack("store-plain"))
    row = served[1500]
    [record] = dump(store, Choice(offset=row["commitLogOffset"]))
    assert record["queueOffset"] == row["queueOffset"]


def test_records_by_key(filled):
    [record] = dump(StoreFiles(filled), Choice(key="k123"))
    assert record["properties"]["KEYS"] == "k123"
    assert body(record).startswith(b"123")


def test_one_queue(filled):
    records = list(dump(StoreFiles(filled), Choice(topic="Topic", queue_id=2)))
    assert [record["queueOffset"] for record in records] == list(range(100))


def test_a_topic_without_queues_is_found_in_the_log(filled):
    for path in sorted((filled / "consumequeue").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    assert len(list(dump(StoreFiles(filled), Choice(topic="Topic")))) == 300


def run(*arguments, code=0):
    result = CliRunner().invoke(main, ["store", "dump", *map(str, arguments)])
    assert result.exit_code == code, result.output
    return result.output


def test_lines_of_json(filled):
    lines = run(filled, "--topic", "Topic", "--limit", 5).splitlines()
    assert [json.loads(line)["queueOffset"] for line in lines] == list(range(5))


def test_places_without_a_record(filled):
    assert "no record at 3" in run(filled, "--offset", 3, code=1)
    assert "is not in the log" in run(filled, "--offset", 1 << 40, code=1)
