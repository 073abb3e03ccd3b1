"""Every store that Java left behind, opened with the configuration it was made with."""

import hashlib
import json

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.config.option import build, read_properties
from rmq.core.clock import SystemClock
from rmq.store.config import StoreConfig
from rmq.store.message_store import MessageStore
from rmq.store.results import Boundary, GetStatus
from tests.golden.recordings import copy_store, read_rows

STOPPED = ["store-empty", "store-plain", "store-features"]
CRASHED = ["store-crash", "store-torn-tail", "store-torn-middle", "store-torn-size"]
OTHER_QUEUES = {"FCompact"}
"""Topics whose queues are of a kind that is not served."""

HOST = bytes((127, 0, 0, 1)) + (10911).to_bytes(4, "big")


@pytest.fixture
def open_named(golden, tmp_path):
    """Unpack a store once and open it; what is open at the end is closed."""
    opened = []

    def open_(name):
        folder = golden / "stores"
        if not (tmp_path / name).exists():
            copy_store(name, tmp_path)
        values = read_properties(folder / f"{name}.conf")
        values["storePathRootDir"] = str(tmp_path / name)
        config = build(StoreConfig, values)
        store = MessageStore.open(config, clock=SystemClock(), store_host=HOST)
        opened.append(store)
        return store

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def expected(golden):
    """Return the rows of one kind that Java answered for a store."""

    def of_kind(name, kind):
        path = golden / "stores" / f"{name}.expected.jsonl"
        return [row for row in read_rows(path) if row["kind"] == kind]

    return of_kind


@pytest.mark.parametrize("name", STOPPED + CRASHED)
def test_every_message_is_the_one_that_java_served(name, open_named, expected):
    store = open_named(name)
    for row in expected(name, "message"):
        if row["cqTopic"] in OTHER_QUEUES:
            continue
        found = store.reads.get(row["cqTopic"], row["cqQueueId"], row["queueOffset"], 1)
        assert found.status is GetStatus.FOUND, row
        count = int(row["properties"].get("INNER_NUM", 1))
        assert found.message_count == count
        assert found.next_begin_offset == row["queueOffset"] + count
        assert hashlib.sha256(found.body).hexdigest() == row["recordSha256"], row


@pytest.mark.parametrize("name", STOPPED + CRASHED)
def test_ends_of_queues(name, open_named, expected):
    store = open_named(name)
    for row in expected(name, "queue"):
        if row["topic"] in OTHER_QUEUES:
            continue
        where = row["topic"], row["queueId"]
        assert store.reads.min_offset(*where) == row["minOffset"], row
        assert store.reads.max_offset(*where) == row["maxOffset"], row
        earliest = store.reads.store_time_at(*where, row["minOffset"])
        assert earliest == row["earliestStoreTime"], row


@pytest.mark.parametrize("name", STOPPED + CRASHED)
def test_searches_by_time(name, open_named, expected):
    store = open_named(name)
    for row in expected(name, "search"):
        if row["topic"] in OTHER_QUEUES:
            continue
        where = row["topic"], row["queueId"], row["timestamp"]
        assert store.reads.offset_by_time(*where, Boundary.LOWER) == row["lower"], row
        assert store.reads.offset_by_time(*where, Boundary.UPPER) == row["upper"], row


@pytest.mark.parametrize("name", STOPPED + CRASHED)
def test_log_ends_where_java_says(name, golden, open_named, expected):
    store = open_named(name)
    [runtime] = expected(name, "runtime")
    first = int(runtime["table"]["commitLogMinOffset"])
    assert store.log.min_offset == max(0, first), "Java's -1: no file yet"
    if name in CRASHED:
        path = golden / "stores" / f"{name}.recovered.json"
        recovered = json.loads(path.read_text())
        assert store.log.end_offset == int(recovered["maxPhyOffset"])
    else:
        assert store.log.end_offset == int(runtime["table"]["commitLogMaxOffset"])


@pytest.mark.parametrize("name", STOPPED + CRASHED)
def test_second_start_finds_the_same(name, open_named):
    store = open_named(name)
    assert store.recovery.was_clean == (name in STOPPED)
    end = store.log.end_offset
    store.close()
    again = open_named(name)
    assert again.log.end_offset == end
    assert again.recovery.was_clean
    assert not again.recovery.cuts


def test_every_acknowledged_send_survived_the_kill(golden, open_named):
    store = open_named("store-crash")
    sends = read_rows(golden / "stores" / "store-crash.acked.jsonl")
    assert sends
    for send in sends:
        found = store.reads.get("Crash", send["queueId"], send["queueOffset"], 1)
        record = decode_record(found.body)
        assert record.physical_offset == int(send["offsetMsgId"][16:], 16)
        keys = dict(
            pair.split("\x01") for pair in record.properties.decode().split("\x02")[:-1]
        )
        assert keys["KEYS"] == send["key"]
