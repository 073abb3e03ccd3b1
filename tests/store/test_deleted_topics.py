"""Deleted topics do not come back, after any kind of start."""

import json
import shutil

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.protocol.topics import SCHEDULE_TOPIC
from rmq.store.deleted_topics import NAME, DeletedTopics


def body_of(store, topic, offset):
    return decode_record(store.reads.get(topic, 0, offset, 1).body).body


def stop(store, how):
    store.close()
    if how == "kill":
        store.directory.abort.set()
        store.directory.checkpoint.unlink()


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_queues_do_not_come_back(open_store, make_message, how):
    """Its records are the last of the log, which every start reads."""
    store = open_store()
    store.writes.put(make_message(topic="Kept"))
    for _ in range(5):
        store.writes.put(make_message(topic="Gone"))
    store.delete_topic("Gone")()
    for number in range(3):
        stop(store, how)
        store = open_store()
        assert store.recovery.was_clean is (how == "clean")
        assert store.reads.max_offset("Gone", 0) == 0, number
        assert not (store.directory.consume_queue / "Gone").exists()
        assert store.reads.max_offset("Kept", 0) == 1


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_topic_made_again_begins_anew(open_store, make_message, how):
    store = open_store()
    for _ in range(5):
        store.writes.put(make_message(b"old", topic="Again"))
    store.delete_topic("Again")()
    store.writes.put(make_message(b"new", topic="Again"))
    stop(store, how)
    store = open_store()
    assert store.reads.max_offset("Again", 0) == 1
    assert body_of(store, "Again", 0) == b"new"


def test_unused_topics_are_those_that_nobody_retains(open_store, make_message):
    store = open_store()
    for topic in ("Used", "Unused", SCHEDULE_TOPIC, "rmq_sys_wheel_timer"):
        store.writes.put(make_message(topic=topic))
    assert store.unused_topics({"Used"}) == {"Unused"}
    store.delete_topic("Unused")()
    assert store.unused_topics({"Used"}) == set()
    store.close()
    store = open_store()
    assert store.reads.max_offset("Unused", 0) == 0
    for topic in ("Used", SCHEDULE_TOPIC, "rmq_sys_wheel_timer"):
        assert store.reads.max_offset(topic, 0) == 1


def test_an_entry_goes_with_the_last_record_of_its_topic(tmp_path):
    known = DeletedTopics(tmp_path)
    known.add({"A"}, end=100, start=0)
    known.add({"B"}, end=200, start=50)
    assert known.ends == {"A": 100, "B": 200}
    known.add({"C"}, end=300, start=100)
    again = DeletedTopics(tmp_path)
    again.load()
    assert again.ends == {"B": 200, "C": 300}
    text = json.loads((tmp_path / NAME).read_bytes())
    assert text == {"deletedTopics": {"B": 200, "C": 300}}


@pytest.mark.parametrize("text", ["", "{", "[]", '{"deletedTopics":{"A":"x"}}'])
def test_an_unreadable_file_knows_nothing(tmp_path, text):
    (tmp_path / NAME).write_text(text)
    known = DeletedTopics(tmp_path)
    known.load()
    assert known.ends == {}


def test_a_flush_during_the_deletion_brings_nothing_back(open_store, make_message):
    """The broker died after its worker had made the files again."""
    store = open_store()
    store.writes.put(make_message(b"old"))
    steps = store.queues.flush_steps(0)
    write = next(steps)
    store.delete_topic("Topic")()
    write()
    assert (store.directory.consume_queue / "Topic" / "0").exists()
    folder = store.directory.consume_queue.rename(store.directory.root / "aside")
    steps.close()
    store.close()
    shutil.rmtree(store.directory.consume_queue, ignore_errors=True)
    folder.rename(store.directory.consume_queue)
    again = open_store()
    assert len(again.queues) == 0
    assert again.writes.put(make_message(b"new")).queue_offset == 0


@pytest.mark.parametrize("how", ["clean", "kill"])
def test_a_topic_made_again_keeps_its_files_while_the_old_ones_go(
    open_store, make_message, how
):
    """The worker that removes files is late, and a flush of the new queue comes."""
    store = open_store()
    store.writes.put(make_message(b"old", topic="Again"))
    store.flush_queues(thorough=True)
    remove_files = store.delete_topic("Again")
    store.writes.put(make_message(b"new", topic="Again"))
    if how == "clean":
        store.flush_queues(thorough=True)
    remove_files()
    stop(store, how)
    store = open_store()
    assert store.reads.max_offset("Again", 0) == 1
    assert body_of(store, "Again", 0) == b"new"


def test_a_deletion_that_a_kill_cut_short_is_finished(
    open_store, make_message, monkeypatch
):
    """The deletion is noted, but the files are still there."""
    store = open_store()
    store.writes.put(make_message(topic="Gone"))
    store.flush_queues(thorough=True)
    store.record_deletion({"Gone"})()
    store.queues.delete_topic("Gone")
    with monkeypatch.context() as patch:
        patch.setattr(store.queues, "remove_deleted", lambda *_: None)
        stop(store, "kill")
    assert (store.directory.consume_queue / "Gone").exists()
    store = open_store()
    assert store.reads.max_offset("Gone", 0) == 0
    assert not (store.directory.consume_queue / "Gone").exists()


def test_messages_that_come_after_a_note_are_deleted_too(open_store, make_message):
    store = open_store()
    store.writes.put(make_message(topic="Gone"))
    store.record_deletion({"Gone"})()
    store.writes.put(make_message(topic="Gone"))
    store.delete_topic("Gone")()
    assert store.deleted_topics.ends == {"Gone": store.log.end_offset}


def test_a_deletion_that_cannot_be_noted_changes_nothing(tmp_path):
    known = DeletedTopics(tmp_path / "absent")
    (tmp_path / "absent").write_text("a file")
    with pytest.raises(OSError, match="absent"):
        known.add({"A"}, end=100, start=0)
    assert known.ends == {}


def written_on_after_a_note(store, make_message, flushed, written_on):
    """The note is on the disk; the deletion has not begun, and senders go on."""
    for number in range(3):
        for queue_id in range(2):
            store.writes.put(make_message(b"%d" % number, "Gone", queue_id))
    if flushed:
        store.flush_queues(thorough=True)
    for number in range(3, 5):
        for queue_id in range(2):
            store.writes.put(make_message(b"%d" % number, "Gone", queue_id))
    store.record_deletion({"Gone"})()
    for queue_id in written_on:
        store.writes.put(make_message(b"5", "Gone", queue_id))


def bodies_of(store, topic, queue_id):
    end = store.reads.max_offset(topic, queue_id)
    found = [store.reads.get(topic, queue_id, at, 1).body for at in range(end)]
    return b"".join(decode_record(body).body for body in found)


@pytest.mark.parametrize("written_on", [(0,), (1,), (0, 1)])
@pytest.mark.parametrize("flushed", [False, True])
def test_a_kill_between_note_and_deletion_leaves_no_gap(
    open_store, make_message, tmp_path, flushed, written_on
):
    """The topic was written after the note: it lives, with every message."""
    store, image = open_store(), tmp_path / "image"
    written_on_after_a_note(store, make_message, flushed, written_on)
    shutil.copytree(store.directory.root, image)
    for _ in range(2):
        again = open_store(image)
        for queue_id in range(2):
            last = b"5" if queue_id in written_on else b""
            assert bodies_of(again, "Gone", queue_id) == b"01234" + last
        assert again.deleted_topics.ends == {}
        again.close()


def test_entries_that_were_flushed_after_a_note_are_kept(
    open_store, make_message, tmp_path
):
    """One queue is whole on the disk, so that only the other one shows the gap."""
    store, image = open_store(), tmp_path / "image"
    written_on_after_a_note(store, make_message, False, (0,))
    store.queues.get("Gone", 1).is_deleted = True  # the flush passes over it
    store.queues.flush()
    shutil.copytree(store.directory.root, image)
    again = open_store(image)
    assert bodies_of(again, "Gone", 0) == b"012345"
    assert bodies_of(again, "Gone", 1) == b"01234"


def test_a_deletion_that_was_cut_short_brings_no_older_one_back(
    open_store, make_message, tmp_path
):
    store, image = open_store(), tmp_path / "image"
    for queue_id in range(3):
        store.writes.put(make_message(b"old", "Gone", queue_id))
    store.delete_topic("Gone")()
    written_on_after_a_note(store, make_message, False, (0, 1))
    shutil.copytree(store.directory.root, image)
    again = open_store(image)
    assert bodies_of(again, "Gone", 0) == bodies_of(again, "Gone", 1) == b"012345"
    assert again.reads.max_offset("Gone", 2) == 0
    assert again.deleted_topics.ends.keys() == {"Gone"}


def test_a_revoked_deletion_leaves_the_one_before_it(tmp_path):
    known = DeletedTopics(tmp_path)
    known.add({"A", "B"}, end=100, start=0)
    known.add({"A", "C"}, end=200, start=0)
    again = DeletedTopics(tmp_path)
    again.load()
    again.revoke({"A", "C"})
    assert again.ends == {"A": 100, "B": 100}
    again.revoke({"A"})
    assert again.ends == {"B": 100}
    known.load()
    assert known.ends == {"B": 100}
