"""Damaged queue entries: they never move the end of the log, and are made again."""

import struct
from contextlib import contextmanager

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.store.entry_check import SMALL_FILE
from tests.store.test_recovery import all_bodies, crash, damage, fill

ENTRY = struct.Struct(">qiq")


def entry_file(store, queue_offset, topic="Topic", queue_id=0):
    """The file of an entry, and where it is in there."""
    size = store.config.queue_file_size
    at = queue_offset * ENTRY.size
    folder = store.directory.consume_queue / topic / str(queue_id)
    return folder / f"{at - at % size:020d}", at % size


def flip(store, queue_offset, bit):
    """Change one bit of an entry; the store is closed."""
    path, at = entry_file(store, queue_offset)
    data = bytearray(path.read_bytes())
    data[at + bit // 8] ^= 128 >> bit % 8
    path.write_bytes(data)


def entry(store, queue_offset):
    path, at = entry_file(store, queue_offset)
    return path.read_bytes()[at : at + ENTRY.size]


def ended(store, *, is_clean):
    if is_clean:
        store.close()
    else:
        store.flush_queues(thorough=True)
        crash(store)


@contextmanager
def damaged(store, offset):
    """Change a byte of the log; the index does not get over it."""
    path = store.directory.commit_log / f"{0:020d}"
    right = path.read_bytes()[offset : offset + 1]
    damage(store, offset, b"\1")
    yield
    damage(store, offset, right)


@pytest.mark.parametrize(
    ("bit", "is_clean"),
    [(bit, True) for bit in range(ENTRY.size * 8)]
    + [(bit, False) for bit in range(0, ENTRY.size * 8, 7)],
)
def test_each_bit_of_the_last_entry(open_store, make_message, bit, is_clean):
    store = open_store()
    sent, results = fill(store, make_message, 12, 60)
    end, right = store.log.end_offset, None
    ended(store, is_clean=is_clean)
    right = entry(store, 11)
    flip(store, 11, bit)
    again = open_store()
    assert again.log.end_offset == end
    assert not again.recovery.cuts
    new = again.writes.put(make_message(b"new"))
    assert (new.physical_offset, new.queue_offset) == (end, 12)
    crash(again)
    last = open_store()
    assert all_bodies(last) == [*sent, b"new"]
    assert entry(last, 11) == right
    assert results[-1].end_offset == end


def test_a_size_with_a_wrong_bit_made_the_next_start_cut_all_since(
    open_store, make_message
):
    """Bit 17 of the size in the last entry: 300 of 300 acknowledged were lost."""
    store = open_store(commit_log_file_size=1 << 20)
    sent, _ = fill(store, make_message, 20, 100)
    store.close()
    flip(store, 19, 64 + 31 - 17)
    again = open_store(commit_log_file_size=1 << 20)
    assert again.recovery.entries_corrected == 1
    assert "queue offset 19 was wrong" in again.recovery.lines()[0]
    more, _ = fill(again, make_message, 50, 100)
    crash(again)
    assert all_bodies(open_store(commit_log_file_size=1 << 20)) == sent + more


def test_a_small_file_is_checked_whole(open_store, make_message):
    store = open_store(queue_file_size=20 * SMALL_FILE)
    sent, _ = fill(store, make_message, 50, 60)
    store.close()
    right = [entry(store, number) for number in range(50)]
    for number, bit in ((0, 40), (20, 90), (21, 159), (30, 3)):
        flip(store, number, bit)
    again = open_store(queue_file_size=20 * SMALL_FILE)
    assert [entry(again, number) for number in range(50)] == right
    assert all_bodies(again) == sent
    assert again.recovery.entries_corrected == 4


def test_a_wrong_tags_code_hid_a_message_from_its_consumers(open_store, make_message):
    store = open_store()
    store.writes.put(make_message(b"b", properties={"TAGS": "A"}))
    store.close()
    right = entry(store, 0)
    flip(store, 0, 159)
    again = open_store()
    assert entry(again, 0) == right
    assert "made again" in again.recovery.lines()[0]


@pytest.mark.parametrize("at", [0, 4, 8, 28])
def test_a_damaged_record_does_not_end_the_log_at_a_clean_start(
    open_store, make_message, at
):
    """Its entry and the checkpoint know better than it where it ends."""
    store = open_store()
    _, results = fill(store, make_message, 12, 60)
    end = store.log.end_offset
    store.close()
    with damaged(store, results[-1].physical_offset + at):
        again = open_store()
    assert again.log.end_offset == end
    assert not again.recovery.cuts
    assert again.writes.put(make_message(b"new")).queue_offset == 12


def test_a_damaged_record_in_the_middle_leaves_its_entry(open_store, make_message):
    store = open_store()
    _, results = fill(store, make_message, 9, 60)
    store.writes.put(make_message(b"last", queue_id=1))
    store.close()
    before = entry(store, 8)
    with damaged(store, results[8].physical_offset):
        again = open_store()
    assert entry(again, 8) == before
    assert not again.recovery.cuts
    assert "one of them is damaged" in again.recovery.lines()[0]


def test_an_entry_that_names_nothing_becomes_a_filler(open_store, make_message):
    """No queue offset is used twice; without the checkpoint nothing proves its end."""
    store = open_store()
    sent, results = fill(store, make_message, 12, 60)
    store.close()
    (store.directory.root / "checkpoint").unlink()
    damage(store, results[-1].physical_offset, b"\1")
    again = open_store()
    assert again.log.end_offset == results[-1].physical_offset
    assert again.writes.put(make_message(b"new")).queue_offset == 12
    found = again.reads.get("Topic", 0, 12, 1)
    assert decode_record(found.body).body == b"new"
    assert all_bodies(again, end=11) == sent[:11]


def test_queues_of_a_topic_with_delays_keep_their_codes(open_store, make_message):
    """Their codes are times, which depend on the table of delays."""
    store = open_store()
    message = make_message(topic="SCHEDULE_TOPIC_XXXX", properties={"DELAY": "3"})
    store.writes.put(message)
    store.close()
    again = open_store()
    assert not again.recovery.entries_corrected
    again.close()
    path, at = entry_file(store, 0, "SCHEDULE_TOPIC_XXXX")
    data = bytearray(path.read_bytes())
    right = bytes(data)
    data[at + 11] ^= 1
    path.write_bytes(data)
    last = open_store()
    assert last.recovery.entries_corrected == 1
    last.close()
    assert path.read_bytes() == right
