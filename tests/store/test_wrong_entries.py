"""Bits that flip in queue files: readers get no other bytes, and entries come back."""

import os
import random

import pytest
import trio

from rmq.core.errors import EntryDamaged
from rmq.protocol.records import decode_stored
from rmq.store.config import OnDamage
from rmq.store.results import GetStatus
from rmq.store.service import StoreService
from tests.waiting import until

COUNT = 60
FILE_SIZE = 800
ENTRY = 20


@pytest.fixture
def store(open_store, make_message):
    store = open_store(queue_file_size=FILE_SIZE)
    fill(store, make_message)
    return store


def fill(store, make_message):
    for number in range(2 * COUNT):
        body = b"%d " % (number // 2) + b"x" * (number % 37)
        store.writes.put(make_message(body, queue_id=number % 2))
    store.flush_queues(thorough=True)
    store.durability.flush()


def path_of(store, offset, queue_id=1):
    base = offset * ENTRY // FILE_SIZE * FILE_SIZE
    return store.queues.get("Topic", queue_id).folder / f"{base:020d}"


def bytes_of(store, offset):
    return path_of(store, offset).read_bytes()[offset * ENTRY % FILE_SIZE :][:ENTRY]


def write(store, offset, data):
    with path_of(store, offset).open("r+b") as file:
        os.pwrite(file.fileno(), data, offset * ENTRY % FILE_SIZE)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def read(store, offset, count=8, **options):
    """Read a queue as a consumer does; return the numbers in the bodies."""
    found = store.reads.get("Topic", 1, offset, count, **options)
    assert found.next_begin_offset > offset
    bodies = decode_stored(found.body) if found.body else []
    return [int(record.body.split()[0]) for record in bodies]


def correct(store):
    """Do what the worker does."""
    while store.wrong_entries.has_found:
        store.wrong_entries.correct_next()


def test_each_bit_of_an_entry(store):
    """Readers get an error, and then the message; bits 96 on are the tags code."""
    right = bytes_of(store, 20)
    for bit in range(8 * ENTRY):
        write(store, 20, flipped(right, bit))
        assert read(store, 12) == [*range(12, 20)]
        if bit >= 96:
            assert read(store, 16) == [*range(16, 24)]
            write(store, 20, right)
            continue
        assert read(store, 16) == [16, 17, 18, 19]
        with pytest.raises(EntryDamaged, match="offset 20 of 'Topic'/1 is damaged"):
            read(store, 20)
        assert len(store.wrong_entries.problems()) == 1
        correct(store)
        assert bytes_of(store, 20) == right
        assert read(store, 20) == [*range(20, 28)]
        assert store.wrong_entries.problems() == []
    assert store.wrong_entries.corrected == 96


def test_each_bit_of_the_oldest_entry(store):
    right = bytes_of(store, 0)
    for bit in range(96):
        write(store, 0, flipped(right, bit))
        with pytest.raises(EntryDamaged):
            read(store, 0)
        correct(store)
        assert bytes_of(store, 0) == right


def test_a_reader_with_tags_is_not_led_to_other_bytes(store):
    right = bytes_of(store, 20)
    for bit in range(96):
        write(store, 20, flipped(right, bit))
        with pytest.raises(EntryDamaged):
            read(store, 20, tag_codes=(0,))
        correct(store)
        assert read(store, 20, tag_codes=(0,)) == [*range(20, 28)]


@pytest.mark.parametrize("data", [bytes(400), os.urandom(400), b"\xff" * 400])
def test_a_part_of_a_file_that_is_lost_comes_back(store, data):
    right = path_of(store, 0).read_bytes()
    write(store, 10, data)
    offset = 0
    for _ in range(COUNT):
        try:
            numbers = read(store, offset)
        except EntryDamaged:
            correct(store)
        else:
            assert numbers == [*range(offset, offset + len(numbers))]
            offset += len(numbers)
        if offset == COUNT:
            break
    assert offset == COUNT
    assert path_of(store, 0).read_bytes() == right


@pytest.mark.usefixtures("without_ring")
@pytest.mark.parametrize("on_damage", OnDamage)
def test_an_entry_without_a_record_is_skipped(open_store, make_message, on_damage):
    store = open_store(queue_file_size=FILE_SIZE, on_damage=on_damage)
    fill(store, make_message)
    offset, *_ = store.queues.get("Topic", 1).entry_at(20)
    file = store.log.files.find(offset)
    with open(file.path, "r+b") as other:
        os.pwrite(other.fileno(), b"\1", offset - file.base_offset + 20)
    with pytest.raises(EntryDamaged):
        read(store, 20)
    correct(store)
    [problem] = store.wrong_entries.problems()
    assert problem.startswith("the entry of queue offset 20 in ")
    if on_damage is OnDamage.STOP:
        with pytest.raises(EntryDamaged):
            read(store, 20)
        return
    found = store.reads.get("Topic", 1, 20, 8)
    assert (found.status, found.next_begin_offset) == (GetStatus.NO_MATCHED_MESSAGE, 21)
    assert store.wrong_entries.skipped == 1


def test_light_queues_have_records_with_places_in_other_queues(
    open_store, make_message
):
    store = open_store(
        queue_file_size=FILE_SIZE, lmq_enabled=True, multi_dispatch_enabled=True
    )
    for number in range(COUNT):
        message = make_message(b"%d" % number)
        message.set_property("INNER_MULTI_DISPATCH", "%LMQ%a")
        store.writes.put(message)
        store.writes.put(make_message(b"other"))
    store.flush_queues(thorough=True)
    found = store.reads.get("%LMQ%a", 0, 10, 8)
    assert [int(each.body) for each in decode_stored(found.body)] == [*range(10, 18)]


async def test_the_service_corrects_entries(store):
    right = bytes_of(store, 20)
    write(store, 20, flipped(right, 3))
    with pytest.raises(EntryDamaged):
        read(store, 20)
    async with trio.open_nursery() as nursery:
        await nursery.start(StoreService(store).run)
        await until(lambda: store.wrong_entries.corrected == 1)
        nursery.cancel_scope.cancel()
    assert bytes_of(store, 20) == right


def test_random_bytes_in_queue_files_never_become_other_messages(store):
    """Many entries at a time, with filters, from any offset."""
    chance = random.Random(1)
    right = path_of(store, 0).read_bytes()
    for _ in range(300):
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(40)
            kind = chance.choice([bytes(ENTRY), os.urandom(ENTRY), None])
            data = flipped(bytes_of(store, at), chance.randrange(96))
            write(store, at, data if kind is None else kind)
        for _ in range(20):
            offset = chance.randrange(40)
            try:
                numbers = read(store, offset, chance.randrange(1, 40))
            except EntryDamaged:
                continue
            assert numbers == [*range(offset, offset + len(numbers))]
        with path_of(store, 0).open("r+b") as file:
            file.write(right)
