"""Whole stores pass; each kind of damage is named with its place."""

import shutil
import struct

import numpy as np
import pytest

from rmq._fastpath.log.decode import RecordStatus
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.scan import survey_log, topic_hash, walk_log
from rmq.protocol.message import Message
from rmq.store.queues.consume_queue import ENTRY_SIZE
from rmq.tools.progress import NoProgress
from rmq.tools.store_files import StoreFiles
from rmq.tools.survey import Column
from rmq.tools.verify import Verification, by_queue

RECORDS = {
    "store-empty": 0,
    "store-plain": 3010,
    "store-features": 157,
    "store-crash": 2333,
}
TORN = {
    "store-torn-tail": (2_451_049, "bad lengths"),
    "store-torn-middle": (2_202_665, "bad crc"),
    "store-torn-size": (2_449_035, "bad size"),
}


def verify(root, **options):
    return Verification(StoreFiles(root), **options).run()


@pytest.mark.parametrize("name", RECORDS)
def test_stores_of_java_are_whole(unpack, name):
    verdict = verify(unpack(name))
    assert not verdict.damages
    assert verdict.record_count == RECORDS[name]
    if name == "store-plain":
        assert verdict.index_entry_count == 9826


@pytest.mark.parametrize("name", TORN)
def test_torn_stores_are_found_where_they_were_torn(unpack, name):
    offset, reason = TORN[name]
    damage = verify(unpack(name)).log_damage
    assert (damage.offset, damage.reason) == (offset, reason)


def test_a_store_of_ours_is_whole(filled):
    verdict = verify(filled)
    assert not verdict.damages
    assert (verdict.record_count, verdict.entry_count) == (300, 300)


def records_of(root):
    """(path of the file, position in it, record) for all records."""
    found = []
    with StoreFiles(root).open_log() as files:
        for file in files:
            _, _, records = walk_log(file, 0, file.size)
            found += [
                (file.path, record.physical_offset - file.base_offset, record)
                for record in records
            ]
    return found


def flip(path, position, bit=0):
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 1 << bit]))


FIELDS = {
    "size": range(4),
    "magic": range(4, 8),
    "body crc": range(8, 12),
    "own offset": range(28, 36),
    "body length": range(84, 88),
    "body": range(88, 91),
}


some_bits_or_all = pytest.mark.parametrize(
    ("bits", "step"),
    [((7,), 3), pytest.param(range(8), 1, marks=pytest.mark.slow)],
    ids=["some bits", "every bit"],
)


@some_bits_or_all
@pytest.mark.parametrize("field", FIELDS)
def test_a_flipped_bit_of_a_record_is_found(filled, field, bits, step):
    """A blank record's magic is one of no record."""
    path, position, record = records_of(filled)[200]
    for at in FIELDS[field][::step]:
        for bit in bits:
            flip(path, position + at, bit)
            damages = verify(filled).damages
            assert [d.offset for d in damages if d.is_log][:1] == [
                record.physical_offset
            ], (at, bit)
            flip(path, position + at, bit)
    assert not verify(filled).damages


@some_bits_or_all
@pytest.mark.parametrize(
    "number",
    [50, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 99))],
)
def test_a_flipped_bit_of_a_queue_entry_is_found(filled, number, bits, step):
    """A sign that turns must not pass for an entry of a cleaned record."""
    path = filled / "consumequeue" / "Topic" / "1" / f"{0:020d}"
    for at in range(0, ENTRY_SIZE, step):
        for bit in bits:
            flip(path, number * ENTRY_SIZE + at, bit)
            [damage] = verify(filled).damages
            place = str(path), number * ENTRY_SIZE
            assert (damage.path, damage.offset) == place, (at, bit)
            flip(path, number * ENTRY_SIZE + at, bit)


def test_entries_of_cleaned_records_are_no_damage(filled):
    StoreFiles(filled).log_paths()[0].unlink()
    verdict = verify(filled)
    assert not verdict.damages
    assert verdict.start_offset == 65536
    assert verdict.record_count < 300


def test_a_queue_offset_or_queue_id_is_missed_by_its_queue(filled):
    """No checksum covers them, but the queue and the log disagree."""
    path, position, _ = records_of(filled)[100]
    for at in (15, 27):
        flip(path, position + at)
        assert verify(filled).damages
        flip(path, position + at)


@pytest.mark.parametrize("at", [19, 47, 51, 63, 67, 75])
def test_digests_find_what_no_checksum_covers(filled, at):
    """Flag, times and hosts: the format has nothing to check them with."""
    path, position, record = records_of(filled)[100]
    assert not verify(filled).damages
    flip(path, position + at)
    [damage] = verify(filled).damages
    block = record.physical_offset // 65536 * 65536
    assert (damage.path, damage.offset) == (str(path), block)
    assert "differ from the written bytes" in damage.reason
    shutil.rmtree(filled / "digest")
    assert not verify(filled).damages


@pytest.mark.parametrize("at", [3, 7, 4 + 8 + 3, 4 + 8 + 4 + 3])
def test_a_flipped_bit_of_an_index_entry_is_found(unpack, at):
    """Of hash, physical offset (its low word), age and chain."""
    root = unpack("store-plain")
    path = sorted((root / "index").iterdir())[1]
    position = 40 + 4 * 500 + 20 * 700
    at = {7: 11}.get(at, at)
    flip(path, position + at, 1)
    damages = verify(root).damages
    assert str(path) in {damage.path for damage in damages}
    assert position in {damage.offset for damage in damages}


def test_a_chain_that_leads_out_of_its_index_file_is_found(unpack):
    root = unpack("store-plain")
    path = sorted((root / "index").iterdir())[1]
    position = 40 + 4 * 500 + 20 * 700
    flip(path, position + 16, 6)
    assert position in {damage.offset for damage in verify(root).damages}


def test_a_flipped_slot_of_an_index_is_found(unpack):
    root = unpack("store-plain")
    path = sorted((root / "index").iterdir())[1]
    slots = path.read_bytes()[40 : 40 + 2000]
    used = next(n for n in range(500) if any(slots[4 * n : 4 * n + 4]))
    flip(path, 40 + 4 * used + 3)
    assert str(path) in {damage.path for damage in verify(root).damages}


def test_a_cut_index_file_is_found(unpack):
    root = unpack("store-plain")
    path = min((root / "index").iterdir())
    path.write_bytes(path.read_bytes()[:1000])
    [damage] = verify(root).damages
    assert damage.path == str(path)


def test_a_missing_log_file_is_found(filled):
    paths = StoreFiles(filled).log_paths()
    assert len(paths) > 2
    paths[1].unlink()
    verdict = verify(filled)
    assert verdict.log_damage.path == str(paths[2])
    assert "missing" in verdict.log_damage.reason
    assert verdict.damaged_queues


def test_a_missing_queue_file_is_found(open_store):
    store = open_store(queue_file_size=200)
    for n in range(50):
        store.writes.put(Message("T", 0, b"%d" % n, 0, 0, 1, bytes(8)))
    store.close()
    missing = store.directory.consume_queue / "T" / "0" / f"{400:020d}"
    missing.unlink()
    damages = verify(store.directory.root).damages
    assert (str(missing), 0) in {(d.path, d.offset) for d in damages}
    assert len(damages) == 1 + 10


def test_a_missing_queue_is_told(filled):
    shutil.rmtree(filled / "consumequeue" / "Topic" / "2")
    verdict = verify(filled)
    assert any("topic Topic" in note for note in verdict.notes)


def test_zeros_before_records_are_damage(filled):
    path, position, record = records_of(filled)[40]
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(bytes(record.size))
    damage = verify(filled).log_damage
    assert damage.offset == record.physical_offset
    assert damage.reason == "zeros instead of a record"
    assert verify(filled).record_count == 299


def test_damage_does_not_hide_what_follows(filled):
    records = records_of(filled)
    for n in (10, 150, 290):
        flip(records[n][0], records[n][1] + 5)
    offsets = [d.offset for d in verify(filled).damages if d.is_log]
    assert offsets == [records[n][2].physical_offset for n in (10, 150, 290)]


def test_without_crc_bodies_are_not_read(filled):
    path, position, _ = records_of(filled)[10]
    flip(path, position + 88)
    assert not verify(filled, check_crc=False).damages


def test_a_topic_that_began_again_is_whole(open_store):
    store = open_store()
    for body in (b"old", b"older", b"oldest"):
        store.writes.put(Message("T", 0, body, 0, 0, 1, bytes(8)))
    store.delete_topic("T")()
    store.writes.put(Message("T", 0, b"new", 0, 0, 1, bytes(8)))
    store.close()
    assert not verify(store.directory.root).damages


def test_beside_an_open_store(open_store):
    """Nothing is locked and nothing is written; more may arrive meanwhile."""
    store = open_store()
    for n in range(500):
        store.writes.put(Message("T", n % 2, b"x" * n, 0, 0, 1, bytes(8)))
    store.durability.flush()
    before = snapshot(store.directory.root)

    class More(NoProgress):
        def add(self, count, messages=None):
            store.writes.put(Message("T", 0, b"meanwhile", 0, 0, 1, bytes(8)))

    files = StoreFiles(store.directory.root)
    verdict = Verification(files).run()
    assert not verdict.damages
    assert verdict.record_count == 500
    assert snapshot(store.directory.root) == before
    verdict = Verification(files, progress=More()).run()
    assert not verdict.damages


@pytest.mark.timeout(20)
def test_it_ends_beside_a_store_with_a_wrong_offset_in_a_record(open_store):
    """The walk came back to the same record for ever."""
    store = open_store()
    results = [
        store.writes.put(Message("T", 0, b"x" * n, 0, 0, 1, bytes(8)))
        for n in range(50)
    ]
    store.durability.flush()
    damaged = results[20].physical_offset
    flip(str(store.directory.commit_log / f"{0:020d}"), damaged + 35)
    verdict = Verification(StoreFiles(store.directory.root)).run()
    flip(str(store.directory.commit_log / f"{0:020d}"), damaged + 35)
    log = [each for each in verdict.damages if each.is_log]
    assert [(each.offset, each.reason) for each in log] == [(damaged, "bad offset")]


def snapshot(root):
    return {p: p.stat().st_mtime_ns for p in root.rglob("*")}


def test_a_survey_tells_what_a_walk_tells(filled):
    path, _, _ = records_of(filled)[0]
    file = MappedFile(path, 65536, writable=False)
    status, stop, records = walk_log(file, 0, file.size)
    rows = memoryview(bytearray(8 * 8 * 1000)).cast("q", (1000, 8))
    assert survey_log(file, 0, file.size, rows) == (status, stop, len(records))
    for n, record in enumerate(records):
        row = rows.tolist()[n] if n == 0 else None
        got = [rows[n, column] for column in range(8)]
        assert row in (None, got)
        assert got == [
            record.physical_offset,
            record.size,
            record.store_ms,
            record.queue_id,
            record.queue_offset,
            record.sys_flag,
            record.tags_code,
            topic_hash(record.topic),
        ]
    few = memoryview(bytearray(8 * 8 * 3)).cast("q", (3, 8))
    status, stop, count = survey_log(file, 0, file.size, few)
    assert (status, stop, count) == (RecordStatus.OK, records[3].physical_offset, 3)
    file.close()
    assert len(Column) == 8


def test_a_survey_refuses_rows_of_another_width(filled):
    path, _, _ = records_of(filled)[0]
    file = MappedFile(path, 65536, writable=False)
    rows = memoryview(bytearray(8 * 7)).cast("q", (1, 7))
    with pytest.raises(ValueError, match="7 columns"):
        survey_log(file, 0, file.size, rows)
    file.close()


def test_index_age_is_seconds(unpack):
    """An age that is one second wrong is found: 20,000,000 entries a file."""
    root = unpack("store-plain")
    path = min((root / "index").iterdir())
    position = 40 + 4 * 500 + 20 * 3 + 12
    with path.open("r+b") as file:
        file.seek(position)
        [age] = struct.unpack(">i", file.read(4))
        file.seek(position)
        file.write(struct.pack(">i", age + 1))
    [damage] = verify(root).damages
    assert "record of its time" in damage.reason


@pytest.mark.parametrize("queue_count", [1, 3, 8, 9, 40])
def test_rows_are_given_by_queue_in_the_order_of_the_log(queue_count):
    rows = np.zeros((500, len(Column)), np.int64)
    rows[:, Column.OFFSET] = np.arange(500)
    queues = np.random.default_rng(queue_count).integers(0, queue_count, 500)
    rows[:, Column.TOPIC], rows[:, Column.QUEUE_ID] = queues // 4, queues % 4
    wanted = {
        int(number): rows[queues == number].tolist() for number in np.unique(queues)
    }
    found = {}
    for part in by_queue(rows):
        number = int(part[0, Column.TOPIC] * 4 + part[0, Column.QUEUE_ID])
        assert number not in found
        found[number] = part.tolist()
    assert found == wanted
