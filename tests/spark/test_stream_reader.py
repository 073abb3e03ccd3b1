"""The stream reader, called in Spark's order without a Spark."""

import pickle

import pytest

pytest.importorskip("pyspark", reason="pip install 'rmq[spark]' for these tests")

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows

from rmq.core.errors import ConfigError
from rmq_spark.options import Options
from rmq_spark.segments.commit_log import LostData, find_segments
from rmq_spark.segments.reader import read_settings
from rmq_spark.segments.schema import columns_of
from rmq_spark.segments.source import SegmentStreamReader
from tests.spark.stores import orders

COUNT = 2_000


def reader_of(store, **given):
    options = Options({"store": str(store), **given})
    return SegmentStreamReader(options, read_settings(options, columns_of(options)))


def rows_between(reader, start, end):
    parts = pickle.loads(pickle.dumps(reader.partitions(start, end)))
    worker = pickle.loads(pickle.dumps(reader))
    batches = [batch for part in parts for batch in worker.read(part)]
    return [key for batch in batches for key in batch.column("keys").to_pylist()]


def run(reader, start, limit=None):
    """Micro-batches until nothing is new, as Spark asks for them."""
    batches = []
    while True:
        end = reader.latestOffset(start, limit or reader.getDefaultReadLimit())
        if end == start:
            return batches, start
        batches.append(rows_between(reader, start, end))
        start = end


def keys(batches):
    return [int(key[1:]) for batch in batches for key in batch]


@pytest.fixture
def store(writer):
    writer.append(orders(COUNT))
    return writer.root


@pytest.mark.parametrize(
    "given",
    [{}, {"maxBytesPerTrigger": "60k"}, {"maxOffsetsPerTrigger": "333"}],
)
def test_available_now_reads_every_row_once(store, writer, given):
    reader = reader_of(store, startingOffsets="earliest", **given)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    assert start == {"broker-a": 0}
    writer.append(orders(100, start=COUNT))
    batches, end = run(reader, start)
    assert keys(batches) == list(range(COUNT))
    assert (len(batches) > 5) == bool(given)
    again = reader_of(store)
    again.prepareForTriggerAvailableNow()
    batches, _ = run(again, end)
    assert keys(batches) == list(range(COUNT, COUNT + 100))


def test_limits_of_the_trigger_win(store):
    reader = reader_of(store, startingOffsets="earliest")
    for limit, count in ((ReadMaxRows(100), 20), (ReadAllAvailable(), 1)):
        batches, _ = run(reader, reader.initialOffset(), limit)
        assert len(batches) == count
        assert keys(batches) == list(range(COUNT))


def test_a_batch_of_one_byte_is_one_record(writer):
    writer.append(orders(100))
    batches, _ = run(reader_of(writer.root), {"broker-a": 0}, ReadMaxBytes(1))
    assert [len(batch) for batch in batches] == [1] * 100


def test_a_stream_starts_at_the_latest_record_unless_told(store, writer):
    assert reader_of(store).initialOffset() == {"broker-a": writer.end}
    place = reader_of(store, startingOffsets='{"broker-a": 100000}').initialOffset()
    assert place == {"broker-a": 100_000}
    timed = reader_of(store, startingTimestamp="5").initialOffset()
    assert timed == {"broker-a": 0}


def test_a_plan_is_the_same_when_a_batch_is_replayed(store, writer):
    reader = reader_of(store, startingOffsets="earliest", splitBytes="20k")
    start, end = {"broker-a": 0}, {"broker-a": writer.end}
    before = reader.partitions(start, end)
    writer.append(orders(500, start=COUNT))
    assert [
        p.part.end for p in reader_of(store, splitBytes="20k").partitions(start, end)
    ] == [p.part.end for p in before]


def test_segments_removed_under_a_stream(store, writer):
    writer.delete_before(200_000)
    start = {"broker-a": 0}
    with pytest.raises(LostData, match="from 0 to 200000 is missing"):
        reader_of(store).latestOffset(start, ReadMaxRows(10))
    reader = reader_of(store, failOnDataLoss="false")
    batches, _ = run(reader, start)
    first = find_segments(store)[0].base_offset
    assert first == 200_000
    assert keys(batches) == list(range(COUNT - len(keys(batches)), COUNT))


def test_a_checkpoint_of_another_broker_is_refused(store):
    with pytest.raises(ConfigError, match="the checkpoint belongs to broker broker-b"):
        reader_of(store).latestOffset({"broker-b": 0}, ReadMaxRows(1))
