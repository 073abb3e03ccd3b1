"""Tombstones fill a place exactly, and are records that nobody is served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmq._fastpath.log.decode import decode_record
from rmq.store.queues.batch_queue import inner_count
from rmq.store.tombstone import (
    BLANK_SIZE,
    LOST_MARK,
    MOST_BYTES,
    Lost,
    encode_tombstone,
    fill_range,
    least_size,
)

FILE_SIZE = 1 << 22


@pytest.mark.parametrize("topic", ["T", "Topic", "t" * 127, "t" * 128, "t" * 255])
@pytest.mark.parametrize("more", [0, 1, 10, 11, 12, 5000])
def test_a_tombstone_takes_the_place_of_its_message(topic, more):
    size = least_size(topic) + more
    data = encode_tombstone(7_000, size, 123, Lost(7_000, size, topic, 3, 99))
    record = decode_record(data)
    assert len(data) == record.size == size
    assert (record.topic, record.queue_id, record.queue_offset) == (topic, 3, 99)
    assert (record.physical_offset, record.store_ms) == (7_000, 123)
    assert record.prepared_offset == LOST_MARK
    assert record.sys_flag == 0
    assert (b"RMQ_LOST" in record.properties) == (more >= 11)
    assert not any(record.body)


@pytest.mark.parametrize("more", [0, 13, 14, 24, 25, 26, 5000])
def test_a_tombstone_of_an_inner_batch_has_its_number_of_messages(more):
    size = least_size("T") + more
    data = encode_tombstone(7_000, size, 123, Lost(7_000, size, "T", 3, 99, 300))
    record = decode_record(data)
    room = more - len(b"INNER_NUM\x01300\x02")
    assert record.size == size
    assert inner_count(record.sys_flag, record.properties) == (1 if room < 0 else 300)
    assert (b"RMQ_LOST" in record.properties) == (room >= 11 or 11 <= more < 14)
    assert not any(record.body)


def test_a_place_without_an_entry_has_no_queue():
    record = decode_record(encode_tombstone(5, 500, 1))
    assert (record.topic, record.sys_flag) == ("L", 0xC)


def records_in(begin, end, lost):
    """Check the records of a filled range; return those with a queue."""
    at, placed = begin, []
    for offset, data in fill_range(begin, end, FILE_SIZE, lost, 1):
        assert offset == at
        at += len(data)
        if not at % FILE_SIZE:
            assert int.from_bytes(data[:4], "big") == len(data) >= BLANK_SIZE
            continue
        record = decode_record(data)
        assert (record.physical_offset, record.size) == (offset, len(data))
        if record.topic != "L":
            placed.append((record.topic, record.queue_id, record.queue_offset))
    assert at == end
    return placed


@given(
    begin=st.integers(0, 2 * FILE_SIZE).filter(
        lambda at: at % FILE_SIZE <= FILE_SIZE - BLANK_SIZE  # each file ends with one
    ),
    sizes=st.lists(st.tuples(st.integers(110, 4_000), st.booleans()), max_size=40),
    rest=st.one_of(st.just(0), st.integers(92, 3 * MOST_BYTES)),
    unplaced=st.integers(0, 5),
)
def test_known_messages_keep_their_places(begin, sizes, rest, unplaced):
    """Records as a log may have had them; of some no entry is known."""
    at, lost = begin, []
    for number, (size, is_known) in enumerate(sizes):
        if at % FILE_SIZE + size + BLANK_SIZE > FILE_SIZE:
            at += FILE_SIZE - at % FILE_SIZE
        if is_known:
            lost.append(Lost(at, size, "Topic", number % 3, number))
        at += size
    end = at + rest
    if 0 < end % FILE_SIZE < 92 and end > at:  # a record would be across two files
        end += 200
    if begin == end:
        return
    known = [each[2:5] for each in lost]
    lost += [Lost(-1, 0, "Topic", 9, number) for number in range(unplaced)]
    placed = records_in(begin, end, lost)
    if begin % FILE_SIZE < FILE_SIZE - 4096:
        assert [each for each in placed if each[1] != 9] == known
    assert [each for each in placed if each[1] == 9] == [
        ("Topic", 9, number) for number in range(sum(each[1] == 9 for each in placed))
    ]


def test_entries_that_cannot_be_right_are_left_out():
    lost = [
        Lost(1_000, 200, "Topic", 0, 0),
        Lost(1_100, 200, "Topic", 0, 1),
        Lost(1_210, 150, "Topic", 0, 2),
        Lost(1_900, 5_000, "Topic", 0, 3),
        Lost(1_500, 20, "Topic", 0, 4),
    ]
    assert records_in(1_000, 2_000, lost) == [("Topic", 0, 0)]
