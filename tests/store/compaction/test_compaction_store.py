"""Compaction topics: copies, reads, compactions, tombstones, crashes.

The model is a dictionary: the last message of each key, and all messages that no
compaction has seen.
"""

import json
import os
import random
import shutil
from pathlib import Path

import pytest

from rmq._fastpath.log.block_digests import BLOCK_BYTES
from rmq.core.errors import RecordDamaged
from rmq.protocol.records import decode_stored
from rmq.store.compaction.compacted_queue import BATCH_ENTRY_SIZE, CompactedQueue
from rmq.store.compaction.compaction_store import run_steps
from rmq.store.results import Boundary, GetStatus

SIZES = {"compaction_file_size": 46 * 100, "compaction_queue_file_size": 46 * 20}
"""Logs of 5,520 bytes, as Java rounds: up to twenty messages each."""


@pytest.fixture
def open_compacted(open_store):
    def make(**settings):
        store = open_store(**SIZES, **settings)
        store.compaction.set_topic("Topic", is_compacted=True)
        return store

    return make


@pytest.fixture
def store(open_compacted):
    return open_compacted()


def put(store, make_message, key, body=b"v", tag=""):
    text = f"KEYS\x01{key}\x02" if key else ""
    text += f"TAGS\x01{tag}\x02" if tag else ""
    return store.writes.put(make_message(body, properties_text=text)).queue_offset


def copy(store):
    store.durability.flush()
    run_steps(store.compaction.copy_steps())


def compact(store):
    copy(store)
    run_steps(store.compaction.compact_steps())


def read(store, offset=0, count=32, **more):
    """Read from an offset to the end: {queue offset: (key, body)}."""
    found = {}
    while True:
        result = store.reads.get("Topic", 0, offset, count, **more)
        for record in decode_stored(result.body):
            found[record.queue_offset] = record.properties.get("KEYS"), record.body
        if result.status is GetStatus.NO_MESSAGE_IN_QUEUE:
            return found
        if result.status not in (GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE):
            assert result.status is GetStatus.OFFSET_OVERFLOW_ONE, result
            return found
        assert result.next_begin_offset > offset
        offset = result.next_begin_offset


def test_messages_are_served_before_and_after_their_copy(store, make_message):
    for number in range(30):
        put(store, make_message, f"k{number}", b"%d" % number)
    before = read(store)
    assert len(before) == 30
    copy(store)
    assert store.compaction.find("Topic", 0).copied_offset == 30
    assert read(store) == before
    put(store, make_message, "new", b"new")
    assert read(store) == before | {30: ("new", b"new")}
    assert store.reads.max_offset("Topic", 0) == 31


def test_copies_have_javas_bytes(store, make_message):
    for number in range(3):
        put(store, make_message, f"k{number}", bytes(50), tag="A")
    copy(store)
    folder = store.directory.root / "compaction"
    log = (folder / "compactionLog" / "Topic" / "0" / f"{0:020d}").read_bytes()
    entries = (folder / "compactionCq" / "Topic" / "0" / f"{0:020d}").read_bytes()
    assert (len(log), len(entries)) == (46 * 120, 46 * 20)
    ordinary = store.reads.get("Topic", 0, 2, 1)
    third = decode_stored(log[: len(ordinary.body) * 3])[2]
    assert third.physical_offset == 2 * len(ordinary.body)
    assert third.queue_offset == 2
    at = 2 * BATCH_ENTRY_SIZE
    assert int.from_bytes(entries[at : at + 8], "big") == third.physical_offset
    assert int.from_bytes(entries[at + 8 : at + 12], "big") == len(ordinary.body)
    assert int.from_bytes(entries[at + 28 : at + 36], "big") == 2
    assert entries[at + 36 : at + 38] == b"\x00\x01"
    assert entries[3 * BATCH_ENTRY_SIZE :] == bytes(46 * 17)


def test_the_last_message_of_each_key_stays(store, make_message):
    for number in range(200):
        put(store, make_message, f"k{number % 7}", b"%d" % number)
    compact(store)
    found = read(store)
    queue = store.compaction.find("Topic", 0)
    newest = queue.parts[-1].entry_at(0).first
    kept = {offset: each for offset, each in found.items() if offset < newest}
    last = {n % 7: n for n in range(newest)}
    assert kept == {n: (f"k{n % 7}", b"%d" % n) for n in last.values()}
    assert set(range(newest, 200)) <= found.keys()
    assert store.reads.min_offset("Topic", 0) == min(last.values())
    path = store.directory.root / "compaction" / "position-checkpoint"
    assert json.loads(path.read_text()) == {"queueOffsetMap": {"Topic_0": newest - 1}}


def test_a_tombstone_removes_its_key(store, make_message):
    put(store, make_message, "gone", b"value")
    put(store, make_message, "stays", b"value")
    put(store, make_message, "gone", b"")
    for number in range(60):
        put(store, make_message, "filler", b"%d" % number)
    compact(store)
    keys = [key for key, _ in read(store).values()]
    assert "gone" not in keys
    assert keys.count("stays") == 1


def test_messages_without_a_key_are_not_kept(store, make_message):
    put(store, make_message, "")
    put(store, make_message, "k")
    put(store, make_message, "  ")
    copy(store)
    assert list(read(store)) == [1]
    put(store, make_message, "")
    assert list(read(store)) == [1, 3], "it has not been copied yet"


def test_histories_agree_with_the_model(open_compacted, make_message, clock):
    rng = random.Random(53)
    store = open_compacted(compaction_memory=128 * 100)
    model, seen = {}, {}
    for _ in range(12):
        for _ in range(rng.randrange(60)):
            key = f"k{rng.randrange(150)}"
            body = b"" if rng.random() < 0.2 else bytes(rng.randrange(1, 300))
            model[put(store, make_message, key, body)] = key, body
        if rng.random() < 0.7:
            compact(store)
        found = read(store)
        for offset, each in found.items():
            assert model[offset] == each
        last = {key: offset for offset, (key, _) in model.items()}
        for key, offset in last.items():
            assert model[offset][1] == b"" or offset in found, key
        assert set(found) <= set(model)
        seen = seen or found
        if rng.random() < 0.4:
            store.close()
            if rng.random() < 0.5:
                store.directory.abort.set()
            store = open_compacted(compaction_memory=128 * 100)
            assert read(store) == found


def test_a_pull_from_a_gap_continues_with_the_next_message(store, make_message):
    for number in range(100):
        put(store, make_message, f"k{number % 2}", b"%d" % number)
    compact(store)
    low = store.reads.min_offset("Topic", 0)
    assert low > 1
    result = store.reads.get("Topic", 0, 1, 1)
    assert result.status is GetStatus.FOUND
    assert decode_stored(result.body)[0].queue_offset == low


def test_tags_are_filtered(store, make_message):
    for number in range(10):
        put(store, make_message, f"k{number}", tag="A" if number % 2 else "B")
    copy(store)
    code = store.queues.get("Topic", 0).entry_at(1)[2]
    assert list(read(store, tag_codes=(code,))) == [1, 3, 5, 7, 9]


def test_times_are_found_in_both_parts(store, make_message, clock):
    times = []
    for number in range(100):
        clock.ms += 1_000
        times.append(clock.now_ms())
        put(store, make_message, f"k{number % 2}", bytes(100))
    compact(store)
    find = store.reads.offset_by_time
    low = store.reads.min_offset("Topic", 0)
    assert find("Topic", 0, times[0], Boundary.LOWER) == low
    assert find("Topic", 0, times[99], Boundary.LOWER) == 99
    assert find("Topic", 0, times[99] + 1, Boundary.LOWER) == 100


@pytest.mark.parametrize("is_expired", [False, True])
def test_searches_by_time_agree_with_what_can_be_read(
    open_compacted, make_message, clock, is_expired
):
    """Some messages are compacted away, and the log may have lost the old ones."""
    store = open_compacted()
    times = {}

    def put_some(first, count):
        for number in range(first, first + count):
            clock.ms += 10
            times[number] = clock.now_ms()
            put(store, make_message, f"k{number % 7}", bytes(100))

    put_some(0, 60)
    compact(store)
    if is_expired:
        remove_log(store, make_message)
    put_some(60, 10)
    readable = sorted(read(store, store.reads.min_offset("Topic", 0)))
    assert len(readable) < 70
    find = store.reads.offset_by_time
    for at in range(times[0] - 5, times[69] + 10, 5):
        lower = [each for each in readable if times[each] >= at]
        upper = [each for each in readable if times[each] <= at]
        found = find("Topic", 0, at, Boundary.LOWER)
        assert [each for each in readable if each >= found] == lower
        assert find("Topic", 0, at, Boundary.UPPER) == (upper[-1] if upper else 0)


def test_the_time_of_a_message_that_only_the_copies_have(
    open_compacted, make_message, clock
):
    store = open_compacted()
    began_ms = clock.now_ms()
    for number in range(10):
        put(store, make_message, f"k{number}")
        clock.ms += 10
    copy(store)
    remove_log(store, make_message)
    found = [
        store.reads.store_time_at("Topic", 0, number) for number in (0, 3, 9, 10, 11)
    ]
    assert found == [began_ms, began_ms + 30, began_ms + 90, -1, -1]


def remove_log(store, make_message):
    """Let all files of the log expire that have messages of the topic."""
    for _ in range(300):
        store.writes.put(make_message(bytes(600), topic="Other"))
    store.durability.flush()
    while store.index.lag_bytes:
        store.index.build()
    copy(store)
    removed = 0
    while (file := store.cleaner.take_log_file(1 << 60)) is not None:
        store.cleaner.discard([file])
        removed += 1
    assert removed
    run_steps(store.cleaner.clean_queues())


def test_the_log_waits_for_the_copies(store, make_message):
    put(store, make_message, "k")
    assert store.cleaner.uncopied_from() == 0
    copy(store)
    assert store.cleaner.uncopied_from() == store.log.end_offset
    store.compaction.set_topic("Topic", is_compacted=False)
    assert store.cleaner.uncopied_from() is None


def test_old_messages_outlast_the_log(open_compacted, make_message):
    store = open_compacted()
    for number in range(10):
        put(store, make_message, f"k{number}", b"%d" % number)
    copy(store)
    remove_log(store, make_message)
    assert len(read(store)) == 10
    assert store.reads.min_offset("Topic", 0) == 0
    store.close()
    again = open_compacted()
    assert len(read(again)) == 10
    assert put(again, make_message, "k3", b"new") == 10


@pytest.mark.parametrize("moment", range(5))
def test_a_compaction_that_a_kill_interrupts_is_finished_or_forgotten(
    open_compacted, make_message, monkeypatch, moment
):
    """The kill comes before one of the renames and removals."""
    store = open_compacted()
    for number in range(200):
        put(store, make_message, f"k{number % 7}", b"%d" % number)
    copy(store)
    before = read(store)
    count = 0

    class Killed(BaseException):
        pass

    def killing(function):
        def call(*arguments, **named):
            nonlocal count
            count += 1
            if count > moment:
                raise Killed
            return function(*arguments, **named)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", killing(Path.replace))
        patch.setattr(Path, "unlink", killing(Path.unlink))
        with pytest.raises(Killed):
            run_steps(store.compaction.compact_steps())
    store.compaction.forget_all()
    store.close()
    again = open_compacted()
    found = read(again)
    last = {n % 7: n for n in range(200)}
    assert set(last.values()) <= found.keys() <= before.keys()
    compact(again)
    assert set(last.values()) <= read(again).keys()


def test_a_torn_end_is_copied_again(open_compacted, make_message):
    store = open_compacted()
    for number in range(10):
        put(store, make_message, f"k{number}", b"%d" % number)
    copy(store)
    before = read(store)
    store.close()
    store.directory.abort.set()
    log = store.directory.root / "compaction/compactionLog/Topic/0" / f"{0:020d}"
    with log.open("r+b") as file:
        file.seek(600)
        file.write(bytes(46 * 120 - 600))
    again = open_compacted()
    assert again.compaction.find("Topic", 0).copied_offset < 10
    assert read(again) == before
    copy(again)
    assert read(again) == before


def test_files_without_a_counterpart_are_set_aside(open_compacted, make_message):
    store = open_compacted()
    put(store, make_message, "k")
    copy(store)
    store.close()
    folder = store.directory.root / "compaction/compactionCq/Topic/0"
    (folder / f"{46 * 120:020d}").write_bytes(bytes(46 * 20))
    again = open_compacted()
    assert any("no counterpart" in line for line in again.recovery.lines())
    assert len(read(again)) == 1


def test_a_cut_of_the_log_cuts_the_copies(store, make_message):
    for number in range(60):
        put(store, make_message, f"k{number}", b"%d" % number)
    copy(store)
    queue = store.queues.get("Topic", 0)
    end = queue.entry_at(25)[0]
    queue.truncate(end)
    store.compaction.follow_cut()
    compacted = store.compaction.find("Topic", 0)
    assert (compacted.copied_offset, compacted.end_offset) == (25, 25)


def test_a_cut_of_the_log_brings_back_what_waits_for_copies(store, make_message):
    for number in range(60):
        put(store, make_message, f"k{number}")
    copy(store)
    end = store.queues.get("Topic", 0).entry_at(25)[0]
    store.queues.get("Topic", 0).truncate(end)
    store.log.file.write_position = end
    store.compaction.follow_cut()
    assert store.cleaner.uncopied_from() == end
    store.compaction.forget_all()
    assert store.cleaner.uncopied_from() == 0


def test_a_topic_that_is_deleted_while_it_is_copied_leaves_nothing(store, make_message):
    """The next message makes a new topic of that name."""
    for number in range(60):
        put(store, make_message, f"k{number}")
    store.durability.flush()
    steps = store.compaction.copy_steps()
    next(steps)()
    step = next(steps)
    step()
    removal = delete(store)
    step()
    run_steps(steps)
    removal()
    folder = store.directory.root / "compaction"
    assert not [path for path in folder.rglob("*") if path.is_file()]
    put(store, make_message, "new", b"new")
    copy(store)
    assert read(store) == {0: ("new", b"new")}


@pytest.mark.parametrize("is_new", [False, True])
def test_a_topic_that_is_deleted_while_it_is_compacted_leaves_nothing(
    store, make_message, monkeypatch, is_new
):
    for number in range(60):
        put(store, make_message, f"k{number % 3}")
    copy(store)
    own, removals = CompactedQueue.replace, []

    def replace(queue, old, new):
        removals.append(delete(store))
        if is_new:
            put(store, make_message, "new", b"new")
        own(queue, old, new)

    monkeypatch.setattr(CompactedQueue, "replace", replace)
    run_steps(store.compaction.compact_steps())
    copy(store)
    removals[0]()
    folder = store.directory.root / "compaction"
    left = [path for path in folder.rglob("*") if path.is_file()]
    assert len(left) == 2 * is_new
    assert read(store) == ({0: ("new", b"new")} if is_new else {})


def test_a_kill_in_a_deletion_leaves_nothing(open_compacted, make_message):
    store = open_compacted()
    put(store, make_message, "k")
    copy(store)
    delete(store)
    store.close()
    open_compacted()
    folder = store.directory.root / "compaction"
    assert not [path for path in folder.rglob("*") if path.is_file()]


def delete(store):
    store.record_deletion({"Topic"})()
    return store.delete_topic("Topic")


def test_a_deleted_topic_leaves_nothing(store, make_message):
    put(store, make_message, "k")
    copy(store)
    delete(store)()
    assert store.compaction.find("Topic", 0) is None
    folder = store.directory.root / "compaction"
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_files_of_an_earlier_topic_are_set_aside(open_compacted, make_message):
    store = open_compacted()
    for number in range(5):
        put(store, make_message, f"k{number}", b"old")
    copy(store)
    store.close()
    folder = store.directory.root / "compaction" / "compactionLog" / "Topic" / "0"
    shutil.copytree(folder, folder.with_name("1"))
    entries = folder.parents[2] / "compactionCq" / "Topic" / "0"
    shutil.copytree(entries, entries.with_name("1"))
    again = open_compacted()
    assert any("it is not served" in line for line in again.recovery.lines())
    text = "KEYS\x01new\x02"
    again.writes.put(make_message(b"new", queue_id=1, properties_text=text))
    copy(again)
    queue = again.compaction.find("Topic", 1)
    assert (queue.min_offset, queue.end_offset) == (0, 1)
    assert folder.with_name("1.earlier").is_dir()
    assert len(read(again)) == 5


def test_the_key_of_the_feature_switches_it_off(open_store, make_message):
    store = open_store(**SIZES, compaction_enabled=False)
    store.compaction.set_topic("Topic", is_compacted=True)
    put(store, make_message, "k")
    copy(store)
    assert store.compaction.find("Topic", 0) is None
    assert len(read(store)) == 1


@pytest.mark.usefixtures("without_ring")
def test_a_damaged_record_waits_for_its_bytes_and_is_copied_once(
    open_compacted, make_message
):
    """Its changed bytes were copied, and outlived the log."""
    store = open_compacted(commit_log_file_size=1 << 20)
    for number in range(200):
        put(store, make_message, f"k{number}", b"v" * 500)
    store.durability.flush()
    store.digests.update()
    place, size, _ = store.queues.get("Topic", 0).entry_at(50)
    file = store.log.files.files[0]
    right = file.read(0, BLOCK_BYTES)
    with open(file.path, "r+b") as opened:
        os.pwrite(opened.fileno(), b"!", place + size // 2)
    file.digests.forget_checks()
    store.digests.has_peers = lambda: True
    for _ in range(2):
        with pytest.raises(RecordDamaged):
            run_steps(store.compaction.copy_steps())
    assert store.digests.repair(0, right)
    store.digests.end_repair(store.digests.bad[0], "h:1")
    copy(store)
    assert read(store) == {n: (f"k{n}", b"v" * 500) for n in range(200)}
