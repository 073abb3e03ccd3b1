"""Stores that Java wrote: the source and the exporter give what Java served."""

import hashlib

import pyarrow.parquet as pq
import pytest

from rmq_spark.export.exporter import Exporter, LocalRunner
from rmq_spark.export.manifest import Settings
from rmq_spark.export.source import ExportLimits
from rmq_spark.export.store_source import StoreSource
from rmq_spark.segments.schema import EXPORTED
from tests.golden.recordings import copy_store, read_rows
from tests.spark.exports import log_of

SETTINGS = Settings("broker-a", "parquet", list(EXPORTED), "map", True)
SMALL = ExportLimits(batch_bytes=200_000, split_bytes=50_000)
EQUAL = ("topic", "queueId", "queueOffset", "flag", "reconsumeTimes", "storeSize")
TIMES = ("bornTimestamp", "storeTimestamp")
HOSTS = ("bornHost", "storeHost")
COMPRESSED, INNER_BATCH = 0x1, 0x80


@pytest.fixture(params=["store-plain", "store-features", "store-crash"])
def store(golden, tmp_path, request):
    """A store, and what Java served from it: messages by their place in the log."""
    name = request.param
    expected = read_rows(golden / "stores" / f"{name}.expected.jsonl")
    messages = [row for row in expected if row["kind"] == "message"]
    served = {
        m["commitLogOffset"]: m
        for m in messages
        if m["topic"] != "FCompact"  # served from the compaction log
    }
    assert served
    return copy_store(name, tmp_path), served


def compare(rows, store, served, *, opened):
    """Each message that Java served is a row; a plain store has no other rows."""
    by_offset = {row["physicalOffset"]: row for row in rows}
    assert len(by_offset) == len(rows)
    for place, message in served.items():
        row = by_offset[place]
        assert [row[n] for n in EQUAL] == [message[n] for n in EQUAL]
        assert [row[n].timestamp() * 1000 for n in TIMES] == [message[n] for n in TIMES]
        assert [f"/{row[n]}" for n in HOSTS] == [message[n] for n in HOSTS]
        assert dict(row["properties"]).items() <= message["properties"].items()
        if not message["sysFlag"] & COMPRESSED or not opened:
            assert hashlib.sha256(row["body"]).hexdigest() == message["bodySha256"]
        assert row["msgId"] == message.get("uniqKey", message["offsetMsgId"])
    if store.name == "store-plain":
        assert served.keys() == by_offset.keys()


def test_read_row_for_row(store, read):
    rows = read(
        store[0], split_bytes=50_000, includeSystemTopics="true", unwrapBatch="false",
        decompress="false",
    )  # fmt: skip
    compare(rows, *store, opened=False)


@pytest.mark.slow
def test_exported_row_for_row(store, tmp_path):
    out = tmp_path / "out"
    exporter = Exporter(StoreSource(store[0]), out, SETTINGS, LocalRunner(), SMALL)
    while exporter.run_batch() is not None:
        pass
    rows = [
        row | {"topic": file.topic}
        for path, file in log_of(out).files().items()
        for row in pq.read_table(out / path, partitioning=None).to_pylist()
        if not row["sysFlag"] & INNER_BATCH
    ]
    plain = {p: m for p, m in store[1].items() if not m["sysFlag"] & INNER_BATCH}
    compare(rows, store[0], plain, opened=True)
