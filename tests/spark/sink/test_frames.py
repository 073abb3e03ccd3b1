"""Frames of random batches: every good row once, at its queue, in order."""

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.bytes.hashing import java_hash
from rmq.client.admin import Queue
from rmq.protocol.batch import BatchItem, decode_batch
from rmq.protocol.properties import decode_properties
from rmq_spark.sink.columns import sink_columns
from rmq_spark.sink.frames import KNOWN, BadRow, FrameMaker, FrameSettings
from rmq_spark.sink.options import BadRows

QUEUES = {
    "A": [Queue("a", "", 0), Queue("a", "", 1), Queue("b", "", 0)],
    "B": [Queue("a", "", 0)],
}
SCHEMA = pa.schema(
    {
        "body": pa.string(),
        "topic": pa.string(),
        "queueId": pa.int32(),
        "brokerName": pa.string(),
        "shardingKey": pa.string(),
        "delayTimeLevel": pa.int32(),
    }
)


def maker_of(batch_bytes=200, policy="skip", compress_from=None, topic=""):
    limits = FrameSettings(topic, batch_bytes, 1_000, compress_from, BadRows(policy))
    return FrameMaker(limits, QUEUES.__getitem__, None)


def items_of(frame):
    """The rows of a frame; a single one as an item."""
    if frame.is_batch:
        return decode_batch(frame.body)
    return [BatchItem(frame.flag, frame.body, frame.properties.decode())]


def place_of(row):
    """Topic, queue (None: any) and whether it is alone; None if it cannot be sent."""
    topic, number = row["topic"], row["queueId"]
    if not row["body"] or topic not in QUEUES:
        return None
    level = row["delayTimeLevel"]
    if level is not None and not 1 <= level <= 18:
        return None
    queue = None
    if row["shardingKey"] is not None:
        queue = QUEUES[topic][abs(java_hash(row["shardingKey"])) % len(QUEUES[topic])]
    if number is not None:
        broker = row["brokerName"] or ""
        found = [
            q
            for q in QUEUES[topic]
            if q.queue_id == number and broker in ("", q.broker)
        ]
        if len(found) != 1:
            return None
        (queue,) = found
    return topic, queue, level is not None


rows = st.fixed_dictionaries(
    {
        "body": st.sampled_from(["", "x", "y" * 50, "z" * 300]),
        "topic": st.sampled_from(["A", "B", None, "no/topic"]),
        "queueId": st.sampled_from([None, None, 0, 1, 7, -1, 200_000]),
        "brokerName": st.sampled_from([None, "a", "b", "c"]),
        "shardingKey": st.sampled_from([None, None, "k1", "k2", "ł"]),
        "delayTimeLevel": st.sampled_from([None, None, None, 0, 3, 19]),
    }
)


@settings(max_examples=20, deadline=None)
@given(st.lists(rows, min_size=1, max_size=20))
def test_every_good_row_once_where_it_belongs(given_rows):
    for number, row in enumerate(given_rows):
        if row["body"]:
            row["body"] = f"{number:04d}{row['body']}"
    batch = pa.RecordBatch.from_pylist(given_rows, SCHEMA)
    found = {}
    for frame in maker_of().make_frames(*sink_columns(SCHEMA.names, batch)):
        items = items_of(frame)
        assert len(items) == frame.rows
        numbers = [int(item.body[:4]) for item in items]
        assert (frame.first_row, frame.last_row) == (numbers[0], numbers[-1])
        assert len(frame.body) <= 200 or frame.rows == 1
        assert numbers == sorted(numbers)
        for number in numbers:
            assert number not in found
            found[number] = frame.topic, frame.queue, not frame.is_batch
    wanted = {
        number: place
        for number, row in enumerate(given_rows)
        if (place := place_of(row)) is not None
    }
    assert {n: each[:2] for n, each in found.items()} == {
        n: each[:2] for n, each in wanted.items()
    }
    assert all(found[n][2] for n, place in wanted.items() if place[2])


def test_rows_are_numbered_over_batches_and_bad_ones_are_named():
    maker = maker_of(policy="fail", topic="A")
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b"]})
    (frame,) = maker.make_frames(*sink_columns(["body"], batch))
    assert (frame.first_row, frame.last_row) == (0, 1)
    batch = pa.RecordBatch.from_pydict({"body": ["c", None, ""]})
    with pytest.raises(BadRow, match="row 3 of the task cannot be sent: its body is"):
        list(maker.make_frames(*sink_columns(["body"], batch)))


def test_large_bodies_are_compressed_alone():
    maker = maker_of(compress_from=100, topic="A")
    batch = pa.RecordBatch.from_pydict({"body": ["a", "b" * 100, "c"]})
    frames = list(maker.make_frames(*sink_columns(["body"], batch)))
    assert sorted(frame.rows for frame in frames) == [1, 2]
    (alone,) = (frame for frame in frames if not frame.is_batch)
    assert alone.sys_flag & 1
    assert len(alone.body) < 50
    assert decode_properties(alone.properties.decode()) == {}


def test_names_that_a_map_may_not_bring():
    assert {KNOWN[name] for name in (b"UNIQ_KEY", b"WAIT", b"CLUSTER")} == {False}
    assert {KNOWN[name] for name in (b"TRAN_MSG", b"DELAY", b"REAL_TOPIC")} == {True}
    assert not KNOWN.keys() & {b"KEYS", b"TAGS", b"colour"}
