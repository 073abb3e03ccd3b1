"""Stores written by Java are served record for record, and recovered like Java does."""

import hashlib
import json

import pytest

from rmq.store.results import Boundary, GetStatus
from tests.golden.recordings import copy_store, read_rows

CRASHED = ("store-crash", "store-torn-tail", "store-torn-middle", "store-torn-size")


def rows(golden, name):
    return read_rows(golden / "stores" / f"{name}.jsonl")


def open_golden(name, tmp_path, open_store):
    root = copy_store(name, tmp_path)
    return open_store(root, commit_log_file_size=1 << 20, queue_file_size=2000)


def check_messages(store, expected):
    count = 0
    for row in expected:
        if row["kind"] != "message":
            continue
        found = store.reads.get(row["cqTopic"], row["cqQueueId"], row["queueOffset"], 1)
        assert found.status is GetStatus.FOUND
        assert found.message_count == 1
        assert hashlib.sha256(found.body).hexdigest() == row["recordSha256"]
        assert store.reads.record_at(row["commitLogOffset"]) == found.body
        queue = store.queues.get(row["cqTopic"], row["cqQueueId"])
        entry = row["cqOffset"], row["cqSize"], row["cqTagsCode"]
        assert queue.entry_at(row["queueOffset"]) == entry
        count += 1
    assert count > 2000


@pytest.mark.parametrize("name", ["store-plain", *CRASHED])
def test_every_message_that_java_serves(golden, name, tmp_path, open_store):
    store = open_golden(name, tmp_path, open_store)
    check_messages(store, rows(golden, f"{name}.expected"))


def test_queues_and_times_of_a_stopped_store(golden, tmp_path, open_store):
    store = open_golden("store-plain", tmp_path, open_store)
    searched = 0
    for row in rows(golden, "store-plain.expected"):
        where = row.get("topic"), row.get("queueId")
        if row["kind"] == "queue":
            assert store.reads.min_offset(*where) == row["minOffset"]
            assert store.reads.max_offset(*where) == row["maxOffset"]
        elif row["kind"] == "search":
            for name, boundary in (
                ("lower", Boundary.LOWER),
                ("upper", Boundary.UPPER),
            ):
                got = store.reads.offset_by_time(*where, row["timestamp"], boundary)
                assert got == row[name], (row, boundary)
            searched += 1
    assert searched
    assert not store.recovery.cuts


@pytest.mark.parametrize("name", CRASHED)
def test_a_crashed_store_ends_where_java_ends_it(golden, name, tmp_path, open_store):
    store = open_golden(name, tmp_path, open_store)
    recovered = json.loads((golden / "stores" / f"{name}.recovered.json").read_text())
    assert store.log.end_offset == int(recovered["maxPhyOffset"])
    for queue in recovered["queues"]:
        where = queue["topic"], queue["queueId"]
        assert store.reads.min_offset(*where) == queue["minOffset"]
        assert store.reads.max_offset(*where) == queue["maxOffset"]
    for cut in store.recovery.cuts:
        assert cut.offset == store.log.end_offset
        assert cut.reason in str(cut)
    assert bool(store.recovery.cuts) == (name != "store-crash")


def test_acknowledged_sends_survive_the_kill(golden, tmp_path, open_store):
    store = open_golden("store-crash", tmp_path, open_store)
    sends = rows(golden, "store-crash.acked")
    assert sends
    for send in sends:
        offset = int(send["offsetMsgId"][16:], 16)
        record = store.reads.record_at(offset)
        assert record is not None
        assert int.from_bytes(record[12:16], "big") == send["queueId"]
        assert int.from_bytes(record[20:28], "big") == send["queueOffset"]


def test_a_recovered_store_stays_as_it_is(tmp_path, open_store):
    store = open_golden("store-torn-middle", tmp_path, open_store)
    end = store.log.end_offset
    store.close()
    again = open_store(
        tmp_path / "store-torn-middle",
        commit_log_file_size=1 << 20,
        queue_file_size=2000,
    )
    assert again.log.end_offset == end
    assert again.recovery.was_clean
    assert not again.recovery.cuts
