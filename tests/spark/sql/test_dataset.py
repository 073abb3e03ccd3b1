"""What DuckDB reads equals what the batch reader reads and pyarrow filters."""

from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rmq_spark.segments.schema import BROKER_NAME
from rmq_spark.sql import dataset as module
from rmq_spark.sql import splits
from rmq_spark.sql.dataset import BrokerLog, LogDataset, ScanSettings
from rmq_spark.sql.log_snapshot import StoreLog
from tests.spark.stores import START_MS, StoreWriter, orders


def moment(at_ms):
    return pa.scalar(at_ms * 1000, pa.timestamp("us", tz="UTC"))


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """A log of five segments whose clock goes back and forth."""
    folder = tmp_path_factory.mktemp("store")
    writer = StoreWriter(folder, 60_000)
    for start, shift in ((0, 0), (300, -7), (600, 20), (900, 3)):
        writer.append(
            each._replace(store_ms=each.store_ms + shift)
            for each in orders(300, start=start)
        )
    writer.append(
        each._replace(topic=b"%DLQ%group") for each in orders(40, start=1_200)
    )
    return StoreLog(folder, "a")


@pytest.fixture
def dataset(log, monkeypatch):
    monkeypatch.setattr(splits, "SPLIT_BYTES", 8_000)
    frozen = log.freeze()
    return LogDataset([BrokerLog(frozen, "a")], ScanSettings(2), with_system=True)


def read(dataset, columns=None, rows=None):
    return dataset.scanner(columns=columns, filter=rows).to_reader().read_all()


topics = st.sampled_from(["orders_00", "orders_02", "%DLQ%group", "none"])
times = st.integers(-10, 40).map(lambda ms: moment(START_MS + ms))
comparisons = st.one_of(
    st.builds(lambda v: pc.field("topic") == v, topics),
    st.builds(lambda v: pc.field("topic") != v, topics),
    st.builds(lambda v: pc.field("topic").isin(v), st.lists(topics, min_size=1)),
    st.builds(lambda v: pc.field("storeTimestamp") >= v, times),
    st.builds(lambda v: pc.field("storeTimestamp") < v, times),
    st.builds(lambda v: pc.field("storeTimestamp") == v, times),
    st.builds(lambda v: pc.field("physicalOffset") > v, st.integers(0, 400_000)),
    st.builds(lambda v: pc.field("queueId") == v, st.integers(0, 4)),
    st.builds(lambda v: pc.field(BROKER_NAME) == v, st.sampled_from("ab")),
    st.just(pc.field("keys").is_null()),
)
filters = st.recursive(
    comparisons,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a & b, inner, inner),
        st.builds(lambda a, b: a | b, inner, inner),
        st.builds(lambda a: ~a, inner),
    ),
    max_leaves=4,
)


@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(rows=filters, columns=st.sampled_from([["keys"], ["topic", "body"], []]))
@pytest.mark.slow
def test_a_filter_gives_the_rows_that_pyarrow_gives(dataset, rows, columns):
    expected = read(dataset).filter(rows)
    found = read(dataset, columns, rows)
    assert found.num_rows == expected.num_rows
    assert found.schema.names == columns
    assert found.equals(expected.select(columns)) or not columns


def test_only_splits_that_may_have_rows_are_read(dataset, monkeypatch):
    ranges = []

    def counted(reading, part):
        ranges.append(part)
        return module_read(reading, part)

    module_read = module.read_range
    monkeypatch.setattr(module, "read_range", counted)
    read(dataset, ["keys"])
    whole = len(ranges)
    ranges.clear()
    found = read(dataset, ["keys"], pc.field("storeTimestamp") >= moment(START_MS + 30))
    assert found.num_rows
    assert 0 < len(ranges) < whole / 2
    ranges.clear()
    assert read(dataset, ["keys"], pc.field(BROKER_NAME) == "b").num_rows == 0
    assert not ranges


def test_only_the_columns_of_projection_and_filter_are_decoded(dataset):
    rows = (pc.field("queueId") == 1) & pc.field("tags").is_valid()
    assert dataset.used_columns(rows) == ["queueId", "tags"]
    assert dataset.used_columns(None) == []


def test_topics_that_a_filter_names_in_vain_are_remembered(log):
    frozen = log.freeze()
    users = LogDataset([BrokerLog(frozen, "a")], ScanSettings(1), with_system=False)
    assert read(users, ["keys"], pc.field("topic") == "%DLQ%group").num_rows == 0
    assert users.left_out == {"%DLQ%group"}
    users.left_out.clear()
    read(users, ["keys"], pc.field("topic") != "orders_01")
    assert not users.left_out


def test_a_reader_that_stops_early_leaves_no_thread(dataset):
    reader = dataset.scanner(columns=["body"]).to_reader()
    first = reader.read_next_batch()
    assert first.num_rows
    del reader


def test_large_ranges_come_in_parts(dataset, monkeypatch):
    whole = read(dataset, ["physicalOffset"])
    monkeypatch.setattr(module, "AHEAD_BYTES", 1)
    monkeypatch.setattr(module, "FIRST_BYTES", 1)
    assert read(dataset, ["physicalOffset"]).equals(whole)


def test_rows_come_in_the_order_of_the_log(dataset):
    offsets = read(dataset, ["physicalOffset"]).column(0).to_pylist()
    assert len(offsets) == 1_240
    assert offsets == sorted(offsets)


def test_times_are_utc(dataset):
    first = read(dataset, ["storeTimestamp"]).column(0)[0].as_py()
    assert first == datetime.fromtimestamp(START_MS / 1000, UTC)
