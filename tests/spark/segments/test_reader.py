import json
import os
import zlib
from dataclasses import replace

import pytest

from rmq.core.errors import CorruptLog
from rmq.protocol.batch import BatchItem, encode_batch
from rmq_spark.options import Options
from rmq_spark.segments import reader
from rmq_spark.segments.commit_log import LostData, find_end, find_segments
from rmq_spark.segments.plan import plan_ranges
from rmq_spark.segments.reader import read_range, read_settings
from rmq_spark.segments.schema import arrow_schema, columns_of
from tests.model.record import ModelRecord
from tests.spark.stores import BROKER_HOST, START_MS, Sent, orders

COUNT = 3_000


@pytest.fixture
def store(writer):
    writer.append(orders(COUNT))
    return writer.root


def keys_of(rows):
    return [int(row["keys"][1:]) for row in rows]


@pytest.mark.parametrize(
    "chunk_bytes", [pytest.param(300, marks=pytest.mark.slow), 4_096, 1 << 20]
)
@pytest.mark.parametrize(
    "split_bytes", [pytest.param(5_000, marks=pytest.mark.slow), 1 << 20]
)
def test_every_row_once_in_the_order_of_the_log(
    store, read, monkeypatch, chunk_bytes, split_bytes
):
    monkeypatch.setattr(reader, "CHUNK_BYTES", chunk_bytes)
    rows = read(store, split_bytes=split_bytes, verifyCrc="all")
    assert keys_of(rows) == list(range(COUNT))
    for i, (row, sent) in enumerate(zip(rows, orders(COUNT), strict=True)):
        assert row["topic"].encode() == sent.topic
        assert row["queueId"] == sent.queue_id
        assert row["body"] == sent.body
        assert row["tags"] == f"Tag{i % 5}"
        assert row["msgId"] == f"{i:032X}"
        assert dict(row["properties"])["WAIT"] == "true"
        assert row["storeTimestamp"].timestamp() * 1000 == sent.store_ms
        assert row["brokerName"] == "broker-a"
        assert row["storeHost"] == "10.0.0.2:10911"


def test_queue_offsets_count_each_queue(store, read):
    queues = {}
    for row in read(store, columns="topic,queueId,queueOffset"):
        queues.setdefault((row["topic"], row["queueId"]), []).append(row["queueOffset"])
    assert len(queues) == 16
    for offsets in queues.values():
        assert offsets == list(range(len(offsets)))


@pytest.mark.parametrize("form", ["full", "slim", "kafka", "body,physicalOffset"])
def test_batches_have_the_schema_that_spark_expects(store, form):
    given = {"schema": form, "includeHeaders": "true"} if form == "kafka" else {}
    given |= {} if form in ("full", "kafka") else {"columns": form}
    options = Options({"store": str(store), **given})
    columns = columns_of(options)
    reading = read_settings(options, columns)
    for part in plan_ranges(store, 0, find_end(store), split_bytes=1 << 20):
        for batch in read_range(reading, part):
            batch.validate(full=True)
            assert batch.schema.equals(arrow_schema(columns))


def test_kafka_rows(store, read):
    row = read(store, schema="kafka", includeHeaders="true")[7]
    assert row["key"] == b"k7"
    assert row["value"] == list(orders(8))[7].body
    assert (row["partition"], row["timestampType"]) == (1, 1)
    assert {"key": "TAGS", "value": b"Tag2"} in row["headers"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"subscribe": "orders_01,none"}, lambda s: s.topic == b"orders_01"),
        ({"subscribePattern": "orders_0[23]"}, lambda s: s.topic[-1] in b"23"),
        (
            {"assign": '{"orders_01": {"broker-a": [1, 3], "other": [0]}}'},
            lambda s: s.topic == b"orders_01" and s.queue_id in (1, 3),
        ),
        (
            {"startingTimestamp": str(START_MS + 10)},
            lambda s: s.store_ms >= START_MS + 10,
        ),
        (
            {
                "startingTimestamp": str(START_MS + 10),
                "endingTimestamp": str(START_MS + 30),
            },
            lambda s: START_MS + 10 <= s.store_ms < START_MS + 30,
        ),
        (
            {"endingOffsetsByTimestamp": json.dumps(
                {"orders_02": {"broker-a": {"2": START_MS + 20}}}
            )},
            lambda s: s[:2] != (b"orders_02", 2) or s.store_ms < START_MS + 20,
        ),
    ],
)  # fmt: skip
def test_choices(store, read, given, wanted):
    expected = [i for i, sent in enumerate(orders(COUNT)) if wanted(sent)]
    assert 0 < len(expected) < COUNT
    assert keys_of(read(store, **given)) == expected


def test_offsets_of_queues(store, read):
    given = {
        "startingOffsets": json.dumps({"orders_01": {"broker-a": {"0": 5, "1": -1}}}),
        "endingOffsets": json.dumps({"orders_01": {"broker-a": {"0": 9, "2": -2}}}),
    }
    rows = read(store, **given, columns="topic,queueId,queueOffset")
    found = {}
    for row in rows:
        if row["topic"] == "orders_01":
            found.setdefault(row["queueId"], []).append(row["queueOffset"])
    assert found[0] == [5, 6, 7, 8]
    assert found.keys() == {0, 3}
    assert len({row["topic"] for row in rows}) == 4


def test_topics_of_the_system_are_left_out(writer, read):
    names = [b"T", b"SCHEDULE_TOPIC_XXXX", b"%RETRY%g", b"%DLQ%g", b"RMQ_SYS_X"]
    writer.append(Sent(name) for name in names)
    writer.append([Sent(b"T", sys_flag=0x4)])
    assert [row["topic"] for row in read(writer.root)] == ["T"]
    rows = read(writer.root, includeSystemTopics="true")
    assert [row["topic"].encode() for row in rows] == [*names, b"T"]
    (row,) = read(writer.root, subscribe="%RETRY%g")
    assert row["topic"] == "%RETRY%g"


def test_compressed_bodies_and_batches_are_opened(writer, read):
    items = encode_batch([BatchItem(1, b"a", ""), BatchItem(2, b"b", "")])
    writer.append(
        [
            Sent(b"T", body=zlib.compress(b"plain"), sys_flag=0x301),
            Sent(b"T", body=items, sys_flag=0xC0),
        ]
    )
    assert [row["body"] for row in read(writer.root)] == [b"plain", b"a", b"b"]
    rows = read(writer.root, decompress="false", unwrapBatch="false")
    assert [row["body"] for row in rows] == [zlib.compress(b"plain"), items]


def part_with_damage(store, key, at, value):
    """Overwrite a byte of the record of a key; its segment and its offset."""
    rows = [row for row in all_rows(store) if row["keys"] == f"k{key}"]
    offset = rows[0]["physicalOffset"]
    for segment in find_segments(store):
        if segment.base_offset <= offset < segment.end_offset:
            with open(segment.path, "r+b") as file:
                os.pwrite(
                    file.fileno(), bytes([value]), offset + at - segment.base_offset
                )
            return segment, offset
    raise AssertionError(offset)


def all_rows(store):
    options = Options({"store": str(store)})
    reading = read_settings(options, columns_of(options))
    for part in plan_ranges(store, 0, find_end(store), split_bytes=1 << 20):
        for batch in read_range(reading, part):
            yield from batch.to_pylist()


@pytest.mark.parametrize("at", [0, 4, 28, 84, 87])
def test_damage_is_an_error_with_its_offset_or_skipped(store, read, at, caplog):
    end = find_end(store)
    segment, offset = part_with_damage(store, 700, at, 0x7F)
    with pytest.raises(CorruptLog) as raised:
        read(store, end=end)
    assert raised.value.offset == offset
    assert raised.value.path == segment.path
    assert keys_of(read(store, end=end, corruptRecords="skip")) == [
        i for i in range(COUNT) if i != 700
    ]
    assert f"at offset {offset}" in caplog.text


def test_crc_is_checked_where_told(store, read):
    _, offset = part_with_damage(store, 10, 100, 0)
    end = find_end(store)
    assert len(read(store, end=end)) == COUNT
    with pytest.raises(CorruptLog, match="CRC") as raised:
        read(store, end=end, verifyCrc="all")
    assert raised.value.offset == offset


def test_nothing_is_read_beyond_the_end_of_the_log(store, writer, read):
    _, offset = part_with_damage(store, COUNT - 5, 100, 0)
    assert find_end(store) == offset
    assert keys_of(read(store)) == list(range(COUNT - 5))


def test_a_range_must_end_where_its_records_do(store):
    options = Options({"store": str(store)})
    reading = read_settings(options, columns_of(options))
    (part, *_) = plan_ranges(store, 0, find_end(store), split_bytes=10_000)
    for wrong in (replace(part, end=part.end - 1), replace(part, end=part.end + 30)):
        with pytest.raises(CorruptLog, match="reaches beyond the range"):
            list(read_range(reading, wrong))
    with pytest.raises(CorruptLog, match="no record starts here"):
        list(read_range(reading, replace(part, start=part.start + 1)))


def test_a_body_full_of_records_is_one_row(writer, read):
    writer.append([Sent(b"T", body=b"first")])
    fake, place = b"", writer.end + 88
    for _ in range(40):
        fake += ModelRecord(
            b"FAKE", physical_offset=place + len(fake), store_host=BROKER_HOST
        ).encode()
    writer.append([Sent(b"T", body=fake), Sent(b"T", body=b"last")])
    for split_bytes in range(1, 200, 17):
        rows = read(writer.root, split_bytes=split_bytes)
        assert [row["topic"] for row in rows] == ["T"] * 3
        assert rows[1]["body"] == fake


def test_a_cut_file_and_a_file_that_is_gone(store, read, caplog):
    options = Options({"store": str(store)})
    reading = read_settings(options, columns_of(options))
    part = plan_ranges(store, 0, find_end(store), split_bytes=1 << 20)[1]
    os.truncate(part.path, 50_000)
    with pytest.raises(CorruptLog):
        list(read_range(reading, part))
    os.remove(part.path)
    with pytest.raises(LostData, match="does not exist any more"):
        list(read_range(reading, part))
    assert list(read_range(replace(reading, fail_on_loss=False), part)) == []
    assert f"{part.start} to {part.end} are not read" in caplog.text


def test_a_file_that_is_removed_while_it_is_read_is_read_to_its_end(store):
    options = Options({"store": str(store)})
    reading = read_settings(options, columns_of(options))
    part = plan_ranges(store, 0, find_end(store), split_bytes=1 << 20)[1]
    whole = sum(batch.num_rows for batch in read_range(reading, part))
    batches = read_range(reading, part, batch_rows=10)
    rows = next(batches).num_rows
    os.remove(part.path)
    assert rows + sum(batch.num_rows for batch in batches) == whole


def test_records_larger_than_a_chunk(writer, read, monkeypatch):
    monkeypatch.setattr(reader, "CHUNK_BYTES", 500)
    bodies = [bytes([i]) * (i * 3_000 % 40_000) for i in range(20)]
    writer.append(Sent(b"T", body=body) for body in bodies)
    assert [row["body"] for row in read(writer.root)] == bodies
    monkeypatch.setattr(reader, "MAX_RECORD_BYTES", 2_000)
    with pytest.raises(CorruptLog, match="record is too long"):
        read(writer.root)
