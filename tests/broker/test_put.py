"""The way into the store: interceptors by property, names that are too long."""

import pytest

from rmq.broker.arrivals import Arrivals
from rmq.broker.put import PutPipeline
from rmq.core.errors import RequestRejected
from rmq.plugin import PutInterceptor
from rmq.protocol.batch import BatchItem
from rmq.protocol.codes import ResponseCode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.message import Message
from rmq.store.config import FlushDiskType, StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.results import PutStatus
from rmq.testing import ManualClock

HOST = host_bytes("127.0.0.1", 10_911)


@pytest.fixture
def open_store(tmp_path):
    opened = []

    def make(**options):
        config = StoreConfig(
            root_dir=str(tmp_path / str(len(opened))),
            commit_log_file_size=1 << 20,
            queue_file_size=2_000,
            **options,
        )
        opened.append(MessageStore.open(config, clock=ManualClock(), store_host=HOST))
        return opened[-1]

    yield make
    for store in opened:
        store.close()


def message(topic="T", **properties):
    return Message(topic, 0, b"x", 0, 0, 1, HOST, properties=properties)


def test_only_messages_with_its_property_meet_an_interceptor(open_store):
    pipeline, met = PutPipeline(open_store()), []
    pipeline.set_interceptors(
        [
            PutInterceptor(frozenset({"A"}), lambda m: met.append("a")),
            PutInterceptor(frozenset({"B"}), lambda m: m.set_property("A", "late")),
            PutInterceptor(frozenset({"A", "C"}), lambda m: met.append("ac")),
        ]
    )
    assert pipeline.triggers == {"A", "B", "C"}
    for properties in ({}, {"A": "1"}, {"B": "1"}, {"C": "1"}):
        assert pipeline.put(message(**properties)).status is PutStatus.PUT_OK
    assert met == ["a", "ac", "ac", "ac"]


def test_a_refusal_stores_nothing(open_store):
    store = open_store()
    pipeline = PutPipeline(store)

    def refuse(_):
        raise RequestRejected(ResponseCode.NO_PERMISSION, "not today")

    pipeline.set_interceptors([PutInterceptor(frozenset({"A"}), refuse)])
    with pytest.raises(RequestRejected, match="not today"):
        pipeline.put(message(A="1"))
    assert store.log.end_offset == 0


def test_long_names_are_for_the_brokers_own_topics(open_store):
    pipeline = PutPipeline(open_store())
    long = "t" * 128
    assert pipeline.put(message(long)).status is PutStatus.MESSAGE_ILLEGAL
    batch = pipeline.put_batch(message(long), [BatchItem(0, b"x", "")])
    assert batch.status is PutStatus.MESSAGE_ILLEGAL
    assert pipeline.put(message("t" * 127)).status is PutStatus.PUT_OK
    retry = "%RETRY%" + "g" * 130
    assert pipeline.put(message(retry)).status is PutStatus.PUT_OK


def test_under_sync_flush_arrivals_wait_for_the_disk(open_store):
    store, told = open_store(flush_disk_type=FlushDiskType.SYNC_FLUSH), []
    arrivals = Arrivals(store)
    arrivals.listen((lambda touched: told.append(dict(touched)),))
    store.writes.put(message())
    arrivals.flush()
    assert told == []
    store.durability.flush()
    arrivals.flush()
    arrivals.flush()
    assert told == [{("T", 0): 1}]
