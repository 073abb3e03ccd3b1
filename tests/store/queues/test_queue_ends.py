"""Queues that lost files are built again from the log."""

import json
import shutil

import pytest

from rmq._fastpath.log.decode import decode_record
from rmq.store.queues.queue_ends import NAME


def numbers(store, topic="Topic", queue_id=0):
    return [
        int(decode_record(store.reads.get(topic, queue_id, offset, 1).body).body)
        for offset in range(store.reads.max_offset(topic, queue_id))
    ]


def fill(store, make_message, count=100):
    for n in range(count):
        store.writes.put(make_message(b"%d" % n))
        store.writes.put(make_message(b"%d" % n, topic="Other", queue_id=n % 2))


def ends_of(store):
    return json.loads((store.directory.config / NAME).read_bytes())


def crash(store):
    store.close()
    store.directory.abort.set()


def test_ends_are_written_at_an_orderly_stop(open_store, make_message):
    store = open_store()
    fill(store, make_message, 7)
    end = store.log.end_offset
    store.close()
    assert ends_of(store) == {
        "logEnd": end,
        "queueEnds": {"Topic": {"0": 7}, "Other": {"0": 4, "1": 3}},
    }


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("lost", ["folder", "first", "middle", "last"])
def test_one_queue_that_lost_files_is_built_again(
    open_store, make_message, lost, is_clean
):
    """Nothing is written to it again, so that only its known end tells."""
    store = open_store()
    fill(store, make_message)
    store.writes.put(make_message(b"1", topic="Third"))
    store.close() if is_clean else crash(store)
    folder = store.directory.consume_queue / "Topic" / "0"
    paths = sorted(folder.iterdir())
    assert len(paths) >= 10
    if lost == "folder":
        shutil.rmtree(folder)
    else:
        paths[{"first": 0, "middle": 4, "last": -1}[lost]].unlink()
    again = open_store()
    expected = list(range(100))
    if lost == "first":  # as after cleaning: what a queue begins with is not known
        assert again.reads.min_offset("Topic", 0) == 10
        expected = expected[10:]
        low = [again.reads.get("Topic", 0, offset, 1) for offset in range(10, 100)]
        assert [int(decode_record(found.body).body) for found in low] == expected
        return
    assert numbers(again) == expected
    assert again.recovery.entries_added > 0
    if is_clean:
        assert any("lost entries: rebuilt" in line for line in again.recovery.lines())
    again.writes.put(make_message(b"100"))
    again.close()
    assert numbers(open_store()) == [*expected, 100]


def test_files_behind_a_gap_are_kept_aside(open_store, make_message):
    store = open_store()
    fill(store, make_message)
    store.close()
    folder = store.directory.consume_queue / "Topic" / "0"
    paths = sorted(folder.iterdir())
    kept = {path.name: path.read_bytes() for path in paths[5:]}
    paths[4].unlink()
    again = open_store()
    aside = again.directory.cut / "consumequeue" / "Topic" / "0"
    assert {path.name: path.read_bytes() for path in aside.iterdir()} == kept
    assert numbers(again) == list(range(100))


def test_a_deleted_topic_stays_deleted(open_store, make_message):
    store = open_store()
    fill(store, make_message, 20)
    store.close()
    again = open_store()
    again.delete_topic("Topic")()
    assert not (again.directory.config / NAME).exists(), "it would bring it back"
    again.close()
    assert set(ends_of(again)["queueEnds"]) == {"Other"}
    last = open_store()
    assert last.reads.max_offset("Topic", 0) == 0
    assert last.reads.max_offset("Other", 0) == 10


def test_ends_beyond_a_shorter_log_mean_nothing(open_store, make_message):
    store = open_store()
    fill(store, make_message, 20)
    store.close()
    shutil.rmtree(store.directory.commit_log)
    again = open_store()
    assert again.reads.max_offset("Topic", 0) == 0
    assert not any("lost entries: rebuilt" in line for line in again.recovery.lines())


@pytest.mark.parametrize(
    "text", ["", "[]", "{", '{"logEnd":1}', '{"logEnd":1,"queueEnds":{"T":3}}']
)
def test_an_unreadable_file_knows_nothing(open_store, make_message, text):
    store = open_store()
    fill(store, make_message, 5)
    store.close()
    (store.directory.config / NAME).write_text(text)
    assert numbers(open_store()) == list(range(5))
