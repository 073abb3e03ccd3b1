"""Reading at a place in the log: which places the store accepts, and which not."""

import pytest

from rmq._fastpath.log.layout import RecordFlag
from rmq.protocol.records import encode_stored

HEAD_SIZE = 88


@pytest.fixture
def store(open_store, make_message):
    store = open_store()
    for n in range(10, 40):  # three files of queue entries
        store.writes.put(make_message(f"m{n}".encode()))
    return store


def test_an_entry_verifies_each_record(store):
    offset = 0
    for n in range(30):
        message = store.reads.verified_message_at(offset)
        assert (message.queue_offset, message.body) == (n, f"m{n + 10}".encode())
        offset += message.size
    assert offset == store.log.end_offset


@pytest.mark.parametrize("offset", [-1, 1, 2**63 - 1])
def test_where_no_record_starts(store, offset):
    assert store.reads.verified_message_at(offset) is None


@pytest.mark.parametrize(
    ("claim", "value"),
    [
        ("queue_offset", 5),
        ("queue_offset", -1),
        ("queue_offset", 30),
        ("queue_offset", 31),
        ("queue_id", 1),
        ("topic", "Other"),
    ],
)
def test_bytes_in_a_body_are_not_verified(store, make_message, claim, value):
    honest = store.reads.verified_message_at(0)
    place = honest.physical_offset = store.log.end_offset + HEAD_SIZE
    setattr(honest, claim, value)
    store.writes.put(make_message(encode_stored(honest)))
    assert store.reads.message_at(place).body == b"m10"
    assert store.reads.verified_message_at(place) is None


def test_a_record_without_an_entry_is_not_verified(store, make_message):
    flag = int(RecordFlag.TRANSACTION_PREPARED)
    place = store.writes.put(make_message(sys_flag=flag)).physical_offset
    assert store.reads.message_at(place) is not None
    assert store.reads.verified_message_at(place) is None


def test_entries_verify_records_after_a_restart_too(store, open_store):
    place = store.log.end_offset - store.reads.verified_message_at(0).size
    store.close()
    assert open_store().reads.verified_message_at(place) is not None
    assert store.directory.abort.is_set


def test_records_of_a_deleted_topic_are_not_verified(store):
    store.delete_topic("Topic")()
    assert store.reads.message_at(0) is not None
    assert store.reads.verified_message_at(0) is None
