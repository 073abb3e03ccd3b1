"""The property __CRC32#: the CRC of a whole record, as Java writes and checks it."""

import zlib

import pytest

from rmq.protocol.batch import BatchItem
from rmq.protocol.records import decode_stored
from tests.store.test_log_digests import flip
from tests.store.test_recovery import crash


@pytest.fixture
def store(open_store):
    return open_store(has_record_crc=True)


def records_of(store):
    """Return the stored records of a queue."""
    queue = store.queues.get("Topic", 0)
    places = [queue.entry_at(at)[:2] for at in range(queue.next_offset)]
    return [store.log.read(*place) for place in places]


def expected_end(record):
    """Return the last property as Java computes it: the last digit first."""
    crc = zlib.crc32(record[:-20]) & 0x7FFFFFFF
    return f"__CRC32#\x01{str(crc)[::-1]:0<10}\x02".encode()


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("", ""),
        ("KEYS\x01k\x02", "KEYS\x01k\x02"),
        ("KEYS\x01k", "KEYS\x01k\x02"),
        ("__CRC32#\x0112345\x02KEYS\x01k\x02", "KEYS\x01k\x02"),
    ],
)
def test_each_record_ends_with_its_crc(store, make_message, text, kept):
    for body in (b"x", b"y" * 1_000):
        pairs = dict(each.split("\x01") for each in text.split("\x02") if each)
        store.writes.put(make_message(body, properties=pairs, properties_text=text))
    for record in records_of(store):
        assert record[-20:] == expected_end(record)
        (message,) = decode_stored(record)
        assert message.properties_text[:-20] == kept
        assert message.properties["__CRC32#"] == record[-11:-1].decode()


def test_a_message_that_was_refused_before_has_one_crc(store, make_message):
    message = make_message(b"x", properties_text="KEYS\x01k\x02")
    store.writes.put(message)
    store.writes.put(message)
    assert [record.count(b"__CRC32#") for record in records_of(store)] == [1, 1]


def test_each_record_of_a_batch_has_a_crc(store, make_message):
    items = [BatchItem(0, b"a", "A\x01b\x02"), BatchItem(0, b"b", "")]
    store.writes.put_batch(make_message(b""), items)
    assert [record[-20:] == expected_end(record) for record in records_of(store)] == [
        True,
        True,
    ]


def test_compiled_code_copies_no_record(store):
    assert store.writes.put_again({}, b"", 0, 0) is None
    assert store.writes.put_timed({}, [], [], 0, (0, 1)) == 0


@pytest.mark.parametrize("checks", [False, True])
def test_a_recovery_finds_a_changed_property(open_store, make_message, checks):
    """The last block before a kill has no digest."""
    store = open_store(has_record_crc=True)
    for number in range(3):
        text = f"KEYS\x01k{number}\x02"
        store.writes.put(make_message(b"x", properties_text=text))
    end = store.log.end_offset
    place, size = store.queues.get("Topic", 0).entry_at(2)[:2]
    path = store.log.files.files[0].path
    crash(store)
    flip(path, place + size - 25)
    again = open_store(verifies_record_crc=checks)
    assert again.log.end_offset == (place if checks else end)


def test_records_without_the_property_are_accepted(open_store, make_message):
    store = open_store()
    store.writes.put(make_message(b"x", properties_text="KEYS\x01k\x02"))
    end = store.log.end_offset
    crash(store)
    again = open_store(verifies_record_crc=True)
    assert again.log.end_offset == end
