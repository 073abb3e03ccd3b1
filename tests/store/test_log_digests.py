"""Bytes that a disk has changed are found by readers, and never served in silence."""

import os
import random
import shutil

import pytest

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq.core.errors import RecordDamaged
from rmq.protocol.records import decode_stored
from rmq.store.cut import CutMark
from rmq.store.log_digests import encode_digests, read_digests
from rmq.store.results import GetStatus
from tests.store.test_recovery import crash

# a ring has the newest records, whatever the disk has
pytestmark = pytest.mark.usefixtures("without_ring")

FILE_SIZE = 4 * BLOCK_BYTES
COUNT = 600
PATIENCE_MS = 60_000
"""The default of rmq.damagePatienceMs."""


@pytest.fixture
def opened(open_store):
    def make(root=None, **settings):
        settings.setdefault("commit_log_file_size", FILE_SIZE)
        return open_store(root, queue_file_size=20_000, **settings)

    return make


@pytest.fixture
def store(opened, make_message):
    """Records of some 1.1 KB in three files, all sealed but the last block."""
    store = opened()
    fill(store, make_message)
    return store


def fill(store, make_message, count=COUNT):
    for number in range(count):
        text = f"KEYS\x01k{number}\x02"
        store.writes.put(
            make_message(b"%5d" % number + b"x" * 995, properties_text=text)
        )
    seal(store)


def seal(store):
    store.durability.flush()
    store.digests.update()


def place_of(store, number):
    return store.queues.get("Topic", 0).entry_at(number)[:2]


def path_of(store, offset):
    base = offset - offset % store.log.files.file_size
    return store.directory.root / "commitlog" / f"{base:020d}"


def flip(path, position, bit=1):
    """Change a bit as a disk does, below all that rmq knows."""
    descriptor = os.open(path, os.O_RDWR)
    [byte] = os.pread(descriptor, 1, position)
    os.pwrite(descriptor, bytes([byte ^ bit]), position)
    os.close(descriptor)


def damage(store, number, at):
    """Flip a bit of a record, and have all blocks read again; return its block."""
    offset = place_of(store, number)[0] + at
    flip(path_of(store, offset), offset % store.log.files.file_size)
    forget(store)
    return offset - offset % store.log.files.file_size % BLOCK_BYTES


def forget(store):
    for file in store.log.files.files:
        file.digests.forget_checks()


def numbers_of(store, count=COUNT):
    """The numbers of all messages that a reader gets."""
    offset, found = 0, []
    while offset < count:
        result = store.reads.get("Topic", 0, offset, 32)
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset
        found += [int(record.body[:5]) for record in decode_stored(result.body)]
    return found


def sealed_of(store):
    return [file.digests.sealed for file in store.log.files.files]


def test_blocks_are_sealed_when_the_disk_has_them(opened, make_message):
    store = opened()
    for _ in range(100):
        store.writes.put(make_message(b"x" * 1000))
    store.digests.update()
    before = sealed_of(store)
    seal(store)
    assert (before, sealed_of(store)) == ([0], [store.log.end_offset // BLOCK_BYTES])


# every field of a record: size, magic, CRC, queue id, flag, queue offset, own offset,
# system flag, times, hosts, reconsume times, prepared offset, body, topic, properties
FIELDS = (1, 5, 9, 13, 17, 21, 29, 37, 41, 49, 57, 65, 73, 77, 90, 1090, 1100)
OUTSIDE_OF_CHECKS = (13, 17, 21, 37, 41, 49, 57, 65, 73, 77, 1090, 1100)
"""Nothing in a record covers these."""


@pytest.mark.parametrize("at", FIELDS)
def test_a_bit_anywhere_in_a_record_is_found(store, at, caplog):
    block = damage(store, 200, at)
    numbers_of(store)
    assert list(store.digests.bad) == [block]
    assert f"offsets {block} to {block + BLOCK_BYTES} have other bytes" in caplog.text
    passed, doubtful = store.digests.passed_reads, store.digests.doubtful_reads
    assert doubtful > 50
    assert passed == (at not in OUTSIDE_OF_CHECKS)


def test_a_message_that_is_damaged_for_good_is_passed_over(store):
    damage(store, 200, 500)
    assert numbers_of(store) == [each for each in range(COUNT) if each != 200]


def test_readers_wait_while_another_broker_may_have_the_bytes(store, clock):
    store.digests.has_peers = lambda: True
    block = damage(store, 200, 500)
    first = next(
        number for number in range(COUNT) if sum(place_of(store, number)) > block
    )
    offset = 0
    while offset < first:
        offset = store.reads.get("Topic", 0, offset, 32).next_begin_offset
    assert offset == first
    with pytest.raises(
        RecordDamaged, match=f"the record at {place_of(store, first)[0]}"
    ):
        store.reads.get("Topic", 0, first, 32)
    after = store.reads.get("Topic", 0, 300, 32)
    assert after.status is GetStatus.FOUND
    clock.ms += PATIENCE_MS
    assert numbers_of(store) == [each for each in range(COUNT) if each != 200]


def test_it_is_found_once_in_a_minute_only(store):
    numbers_of(store)
    offset = place_of(store, 200)[0]
    flip(path_of(store, offset), offset % FILE_SIZE + 500)
    numbers_of(store)
    assert not store.digests.bad
    forget(store)
    numbers_of(store)
    assert store.digests.bad


def test_tags_and_positions_of_a_damaged_block(store):
    """A reader of another tag gets no message of the block, and no error."""
    damage(store, 200, 500)
    result = store.reads.get("Topic", 0, 200, 32, tag_codes=(7,))
    assert (result.status, result.message_count) == (GetStatus.NO_MATCHED_MESSAGE, 0)
    assert result.next_begin_offset > 200


def test_the_bytes_of_another_broker_replace_them(store):
    before = path_of(store, place_of(store, 200)[0]).read_bytes()
    block = damage(store, 200, 500)
    store.digests.report(block)
    bad = store.digests.bad[block]
    at = block % FILE_SIZE
    right = before[at : at + BLOCK_BYTES]
    assert not store.digests.repair(block, right[:-1])
    assert not store.digests.repair(block, bytes(BLOCK_BYTES))
    assert store.digests.repair(block, right)
    store.digests.end_repair(bad, "h:1")
    assert numbers_of(store) == list(range(COUNT))
    assert not store.digests.bad
    assert store.digests.healed_bytes == BLOCK_BYTES
    assert (store.directory.root / "damaged").is_dir()


def test_a_block_that_the_disk_cannot_read_is_passed_over(store):
    """The file became shorter: a mapping of its end would end the process."""
    first = store.log.files.files[0]
    os.truncate(first.path, 2 * BLOCK_BYTES)
    forget(store)
    found = numbers_of(store)
    lost = [place_of(store, each)[0] for each in set(range(COUNT)) - set(found)]
    assert list(store.digests.bad) == [2 * BLOCK_BYTES, 3 * BLOCK_BYTES]
    assert min(lost) >= 2 * BLOCK_BYTES - 1_200
    assert max(lost) < FILE_SIZE
    assert store.digests.passed_reads == len(lost) > 100


# -- the end of damage


def test_damage_ends_with_its_file(store):
    block = damage(store, 10, 45)
    later = damage(store, 590, 45)
    numbers_of(store)
    store.digests.damaged_records[0] = "the record at 0 is damaged"
    assert list(store.digests.bad) == [block, later] == [0, later]
    store.digests.forget_before(FILE_SIZE)
    assert list(store.digests.bad) == [later]
    assert not store.digests.damaged_records


def test_damage_ends_when_the_log_is_truncated_before_it(store):
    damage(store, 590, 45)
    kept = damage(store, 10, 45)
    numbers_of(store)
    records = store.digests.damaged_records
    records[0], records[2 * FILE_SIZE] = "kept", "truncated"
    end = place_of(store, 300)[0]
    store.digests.cut_to(end)
    assert list(store.digests.bad) == [kept]
    assert store.digests.damaged_records == {0: "kept"}
    store.digests.forget_all()
    assert not store.digests.bad
    assert not store.digests.damaged_records


def test_a_report_about_an_expired_file_is_ignored(store):
    """The scrub read it while it expired; this was an AssertionError."""
    gone = store.log.files.files.pop(0)
    store.digests.report(BLOCK_BYTES)
    assert not store.digests.bad
    store.cleaner.discard([gone])


# -- starts


def test_digests_outlast_a_stop(store, opened):
    sealed = sealed_of(store)
    store.close()
    again = opened()
    again.digests.update()
    assert sealed_of(again) == sealed
    damage(again, 200, 1090)
    numbers_of(again)
    assert again.digests.bad


def test_a_kill_loses_no_digest_of_what_the_checkpoint_covers(
    store, opened, make_message
):
    store.flush_queues(thorough=True)
    fill(store, make_message)
    sealed = sealed_of(store)
    image = store.directory.root.with_name("image")
    shutil.copytree(store.directory.root, image)
    again = opened(image)
    again.digests.update()
    assert sealed_of(again) == sealed
    assert len(numbers_of(again, 2 * COUNT)) == 2 * COUNT


def test_what_was_damaged_while_it_did_not_run_is_found(store, opened):
    offset = place_of(store, 200)[0]
    store.close()
    flip(path_of(store, offset), offset % FILE_SIZE + 45)
    again = opened()
    again.digests.load()
    numbers_of(again)
    assert again.digests.bad


@pytest.mark.parametrize("is_marked", [False, True])
def test_what_is_appended_after_a_cut_is_no_damage(
    store, opened, make_message, is_marked
):
    """A start truncates the log; then other bytes are where sealed blocks were."""
    kept = 100 if is_marked else 500
    end = place_of(store, kept)[0]
    if is_marked:
        store.close()
        CutMark(store.directory.root).save(end)
    else:
        store.digests.update(saves_all=True)
        crash(store)
        flip(path_of(store, end), end % FILE_SIZE + 500)
    again = opened()
    assert again.log.end_offset == end
    for number in range(kept, COUNT):
        again.writes.put(make_message(b"%5d" % number + b"y" * 995))
    seal(again)
    forget(again)
    assert numbers_of(again) == list(range(COUNT))
    assert not again.digests.bad
    crash(again)
    last = opened()
    last.digests.update()
    assert numbers_of(last) == list(range(COUNT))
    assert not last.digests.bad


def test_a_log_that_another_program_has_used_is_sealed_again(store, opened):
    """Its bytes may have changed rightly: Java truncates, and appends again."""
    store.close()
    (store.directory.root / "checkpoint").write_bytes(bytes(4096))
    again = opened()
    offset = place_of(again, 200)[0]
    flip(path_of(again, offset), offset % FILE_SIZE + 45)
    again.digests.update()
    numbers_of(again)
    assert not again.digests.bad


def test_files_of_digests_go_with_their_files(store):
    folder = store.directory.root / "digest"
    bases = [int(path.name) for path in sorted(folder.iterdir())]
    assert bases == [file.base_offset for file in store.log.files.files][:-1]
    gone = store.log.files.files.pop(0)
    store.digests.update()
    assert int(min(folder.iterdir()).name) == gone.base_offset + FILE_SIZE
    store.cleaner.discard([gone])


def test_the_key_switches_it_off(opened, make_message):
    store = opened(has_log_digests=False)
    for number in range(COUNT):
        store.writes.put(make_message(b"%5d" % number + b"x" * 995))
    store.durability.flush()
    store.digests.update()
    assert store.log.files.files[0].digests is None
    assert not (store.directory.root / "digest").exists()


# -- their files


def test_every_bit_of_a_file_of_digests_is_covered():
    data = encode_digests(bytes(range(40)), 7 * FILE_SIZE, FILE_SIZE, 99)
    assert read_digests(data, 7 * FILE_SIZE, FILE_SIZE) == (bytes(range(40)), 99)
    for bit in range(8 * len(data)):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        assert read_digests(bytes(changed), 7 * FILE_SIZE, FILE_SIZE) is None
    for size in range(len(data)):
        assert read_digests(data[:size], 7 * FILE_SIZE, FILE_SIZE) is None
    assert read_digests(data, 0, FILE_SIZE) is None
    assert read_digests(data, 7 * FILE_SIZE, 2 * FILE_SIZE) is None


def test_a_damaged_file_of_digests_is_made_again(store, opened, caplog):
    store.close()
    path = min((store.directory.root / "digest").iterdir())
    flip(path, 50)
    again = opened()
    again.digests.update()
    assert "is damaged and is made again" in caplog.text
    assert numbers_of(again) == list(range(COUNT))
    assert not again.digests.bad


# -- no false alarm


@pytest.mark.parametrize("seed", range(12))
def test_kills_and_power_cuts_are_no_damage(opened, make_message, tmp_path, seed):
    """After each start all blocks are as their digests have them.

    A power cut keeps some of what the disk had not confirmed, page by page.
    """
    chance = random.Random(seed)
    root = tmp_path / "0"
    for number in range(1, 7):
        store = opened(root)
        for _ in range(chance.randrange(1, 12)):
            act(store, make_message, chance)
        root = tmp_path / str(number)
        shutil.copytree(store.directory.root, root)
        if chance.random() < 0.5:
            cut_power(root, store, chance)
        store.close()
        again = opened(root)
        again.digests.update()
        forget(again)
        bad = again.digests.first_bad(
            (file.base_offset, file.size) for file in again.log.files.files
        )
        assert bad is None
        again.close()


def act(store, make_message, chance):
    """Do what a broker does in some seconds."""
    kind = chance.choice(["put", "put", "put", "flush", "update", "thorough"])
    if kind == "put":
        for _ in range(chance.randrange(1, 150)):
            store.writes.put(make_message(chance.randbytes(chance.randrange(2_000))))
    elif kind == "flush":
        store.durability.flush()
    elif kind == "update":
        store.digests.update()
    else:
        store.flush_queues(thorough=True)


def cut_power(root, store, chance):
    """Take away pages of the log that were not durable."""
    durable = store.positions.durable.value
    for path in (root / "commitlog").iterdir():
        data = bytearray(path.read_bytes())
        for at in range(0, len(data), 4096):
            begin = max(at, durable - int(path.name))
            if begin < at + 4096 and chance.random() < 0.5:
                data[begin : at + 4096] = bytes(at + 4096 - begin)
        path.write_bytes(bytes(data))
