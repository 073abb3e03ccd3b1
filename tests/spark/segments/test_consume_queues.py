import os
import pickle

import pytest

from rmq.core.errors import ConfigError, CorruptLog
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import LostData, find_end, find_segments
from rmq_spark.segments.consume_queues import plan_records, read_records
from rmq_spark.segments.reader import read_settings
from rmq_spark.segments.schema import columns_of
from tests.spark.stores import ENTRY, orders

COUNT = 3_000


@pytest.fixture
def store(writer):
    writer.append(orders(COUNT))
    return writer.root


def read_queues(store, start=0, end=None, split_bytes=20_000, **given):
    options = Options({"store": str(store), **given})
    reading = read_settings(options, columns_of(options))
    end = find_end(store) if end is None else end
    rows = []
    for part in plan_records(options, start, end, split_bytes=split_bytes):
        for batch in read_records(reading, pickle.loads(pickle.dumps(part))):
            batch.validate(full=True)
            rows += batch.to_pylist()
    return rows


@pytest.mark.parametrize(
    "given",
    [
        {"subscribe": "orders_01"},
        {"subscribe": "orders_03,orders_01", "verifyCrc": "all"},
        {"assign": '{"orders_02": {"broker-a": [0, 3], "other": [1]}}'},
        {
            "subscribe": "orders_01",
            "columns": "body",
            "startingTimestamp": "1763000000020",
        },
    ],
)
@pytest.mark.parametrize(
    "split_bytes", [pytest.param(1, marks=pytest.mark.slow), 20_000, 1 << 30]
)
def test_the_rows_are_those_of_the_log(store, read, given, split_bytes):
    rows = read_queues(store, split_bytes=split_bytes, **given)
    assert rows == read(store, **given)
    assert rows


def test_bounds_are_physical(store, read):
    rows = read(store, subscribe="orders_00")
    start, end = rows[10]["physicalOffset"], rows[20]["physicalOffset"]
    found = read_queues(store, start, end, subscribe="orders_00")
    assert found == rows[10:20]


def test_entries_that_lie_are_noticed_or_skipped(store, caplog):
    path = store / "consumequeue" / "orders_01" / "2" / f"{0:020d}"
    with path.open("r+b") as file:
        file.seek(5 * ENTRY.size)
        offset, size, _ = ENTRY.unpack(file.read(ENTRY.size))
        file.seek(5 * ENTRY.size)
        file.write(ENTRY.pack(offset + 1, size, 0))
    with pytest.raises(CorruptLog) as raised:
        read_queues(store, subscribe="orders_01")
    assert raised.value.offset == offset + 1
    rows = read_queues(store, subscribe="orders_01", corruptRecords="skip")
    assert len(rows) == COUNT // 4 - 1
    assert f"at offset {offset + 1}" in caplog.text


def test_damage_in_a_record_is_noticed_or_skipped(store, read):
    row = read(store, subscribe="orders_01")[30]
    segment = find_segments(store)[row["physicalOffset"] // 100_000]
    with open(segment.path, "r+b") as file:
        at = row["physicalOffset"] - segment.base_offset
        os.pwrite(file.fileno(), b"\x7f", at + 87)
    with pytest.raises(CorruptLog, match="do not add up") as raised:
        read_queues(store, end=1 << 40, subscribe="orders_01")
    assert raised.value.offset == row["physicalOffset"]
    rows = read_queues(store, end=1 << 40, subscribe="orders_01", corruptRecords="skip")
    assert len(rows) == COUNT // 4 - 1


def test_fillers_and_removed_segments_are_passed_over(store, writer):
    path = store / "consumequeue" / "orders_01" / "0" / f"{0:020d}"
    rows = read_queues(store, subscribe="orders_01")
    path.write_bytes(ENTRY.pack(0, 0x7FFFFFFF, 0) + path.read_bytes() + bytes(200))
    assert read_queues(store, subscribe="orders_01") == rows
    writer.delete_before(200_000)
    left = read_queues(store, subscribe="orders_01")
    assert left == [row for row in rows if row["physicalOffset"] >= 200_000]


def test_a_segment_that_goes_after_the_plan(store, caplog):
    options = Options({"store": str(store), "subscribe": "orders_01"})
    reading = read_settings(options, columns_of(options))
    (part, *_) = plan_records(options, 0, 1 << 40, split_bytes=1 << 30)
    os.remove(part.path)
    with pytest.raises(LostData):
        list(read_records(reading, part))
    options = Options({"store": str(store), "failOnDataLoss": "false"})
    assert list(read_records(read_settings(options, columns_of(options)), part)) == []
    assert "does not exist any more" in caplog.text


def test_topics_must_be_named_and_there(store):
    with pytest.raises(ConfigError, match="needs option subscribe"):
        read_queues(store)
    with pytest.raises(ConfigError, match="topic none has no consume queue"):
        read_queues(store, subscribe="none")
