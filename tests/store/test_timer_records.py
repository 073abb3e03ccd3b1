"""Records of due units: the same as one by one, and no record without an entry."""

from array import array

import pytest
from msgspec.structs import replace

from rmq.protocol.records import decode_stored_at, encode_stored
from rmq.protocol.topics import TIMER_TOPIC
from rmq.store.allocate import FileAllocator
from rmq.store.timer.log import RECALLS, ROLLS, UNIT_SIZE, TimerLog, TimerUnit

HEAD_SIZE = 91 - 3
COUNT = 30


@pytest.fixture
def store(open_store, make_message):
    store = open_store()
    for number in range(COUNT):  # three files of queue entries
        message = make_message(f"m{number}".encode(), topic=TIMER_TOPIC)
        store.writes.put(message)
    return store


@pytest.fixture
def log(tmp_path):
    log = TimerLog(tmp_path / "units", 10 * UNIT_SIZE + 20, FileAllocator(1 << 20))
    yield log
    log.close()


def all_units(store):
    offset = 0
    for number in range(COUNT):
        record = store.reads.verified_message_at(offset)
        yield TimerUnit(-1, 1, 1_000 + number, 500, offset, record.size, number)
        offset += record.size


def run(store, log, units):
    """The bodies that are read, the properties that they get, and the hashes."""
    positions = array("q", [log.append(unit) for unit in units])
    store.timer.log = log
    records, added, hashes = store.timer.due_records(positions)
    return [decode_stored_at(each, 0).body for each in records], added, hashes


@pytest.mark.parametrize("is_again", [False, True])
def test_records_come_in_the_order_of_their_units(
    store, open_store, log, clock, is_again
):
    units = list(all_units(store))
    units = units[20:] + units[:20]
    if is_again:
        store.close()
        store = open_store()
    bodies, added, hashes = run(store, log, units)
    order = [*range(20, COUNT), *range(20)]
    assert bodies == [f"m{number}".encode() for number in order]
    assert hashes == order
    text = b"TIMER_ENQUEUE_MS\x01%d\x02TIMER_DEQUEUE_MS\x01%d\x02"
    assert added == [text % (1_000 + number, clock.now_ms()) for number in order]


@pytest.mark.parametrize(
    "change",
    [
        {"bits": 1 | ROLLS},
        {"bits": 1 | RECALLS},
        {"bits": 0},
        {"written_ms": -1},
        {"size": 20},
        {"size": -1},
        {"size": 2**31 - 1},
        {"offset": -5},
        {"offset": 1},
        {"offset": 1 << 60},
        {"offset": 2**63 - 1},
    ],
)
def test_they_end_before_what_is_not_plain(store, log, change):
    units = list(all_units(store))
    bodies, _, _ = run(store, log, [*units[:2], units[2]._replace(**change), units[3]])
    assert bodies == [b"m0", b"m1"]


def test_they_end_before_what_is_no_unit(store, log):
    unit = next(all_units(store))
    position = log.append(unit)
    for odd in (position + 1, position + UNIT_SIZE, -UNIT_SIZE, 1 << 60):
        wanted = array("q", [position, odd, position])
        store.timer.log = log
        assert len(store.timer.due_records(wanted)[0]) == 1


def test_bytes_in_a_body_are_no_record(store, log, make_message):
    place = store.log.end_offset + HEAD_SIZE
    forged = encode_stored(
        replace(store.reads.verified_message_at(0), physical_offset=place)
    )
    store.writes.put(make_message(forged))
    unit = next(all_units(store))._replace(offset=place, size=len(forged))
    assert run(store, log, [unit]) == ([], [], [])


def test_a_store_without_timed_messages_has_none(open_store, log):
    assert run(open_store(), log, []) == ([], [], [])
