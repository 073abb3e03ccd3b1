"""What is left of a log that was cut, also if a kill came in the middle."""

import shutil

import pytest

from rmq.store import replica_writer
from rmq.store.config import BrokerRole
from rmq.store.cut import CutMark
from rmq.store.replica_writer import ReplicaWriter
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.store.test_replica_writer import bytes_of, entries_of, fill, logs_of

FILE_SIZE = 1 << 16
OLD = 300
"""Messages, over three files."""


@pytest.fixture
def open_replica(open_store, tmp_path):
    def open_one(name="replica"):
        return open_store(
            tmp_path / name,
            commit_log_file_size=FILE_SIZE,
            broker_role=BrokerRole.SLAVE,
        )

    return open_one


@pytest.fixture
def logs(open_store, tmp_path, make_message):
    """Two masters whose logs part after the given number of messages."""

    def make(parts_at):
        masters = []
        for name, seed in (("old", 1), ("new", 2)):
            store = open_store(tmp_path / name, commit_log_file_size=FILE_SIZE)
            fill(store, make_message, parts_at)
            end = store.log.end_offset
            fill(store, make_message, OLD - parts_at, seed=seed)
            masters.append(store)
        return *masters, end

    return make


def follow(writer, master):
    for start, data in bytes_of(master, writer.received_offset):
        writer.append(start, data)


def run(steps, count=None):
    for number, step in enumerate(steps):
        if number == count:
            return False
        step()
    return True


def assert_equal(store, master):
    assert len(set(logs_of(store, master))) == 1
    ours, theirs = entries_of(store), entries_of(master)
    assert {key: found for key, found in ours.items() if found} == theirs


@pytest.mark.parametrize("parts_at", [1, 60, 130, 299])
@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_log_that_was_cut_follows_the_other_one(
    logs, open_replica, parts_at, is_flushed
):
    old, new, end = logs(parts_at)
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    if is_flushed:
        store.flush_queues(thorough=True)
        while store.index.lag_bytes:
            store.index.build()
    result = run(writer.cut_steps(end))
    assert result
    assert writer.whole_offset == writer.received_offset == end
    assert store.positions.durable.value <= end
    assert store.index.next_offset <= end
    assert store.checkpoint.logics_physical_offset <= end
    assert sum(cut.record_count for cut in writer.cuts) == OLD - parts_at
    follow(writer, new)
    assert_equal(store, new)
    store.flush_queues(thorough=True)
    while store.index.lag_bytes:
        store.index.build()
    assert not Verification(StoreFiles(store.directory.root)).run().damages
    store.close()
    assert_equal(again := open_replica(), new)
    assert again.recovery.was_clean


@pytest.mark.parametrize("is_flushed", [False, True])
def test_a_kill_at_any_step_leaves_the_old_log_or_the_cut_one(
    logs, open_replica, tmp_path, is_flushed
):
    old, new, end = logs(100)
    done, number = False, 0
    while not done:
        store = open_replica(f"killed{number}")
        writer = ReplicaWriter(store)
        follow(writer, old)
        if is_flushed:
            store.flush_queues(thorough=True)
        done = run(writer.cut_steps(end), number)
        has_begun = CutMark(store.directory.root).load() is not None
        shutil.copytree(store.directory.root, tmp_path / f"image{number}")
        again = open_replica(f"image{number}")
        assert CutMark(again.directory.root).load() is None
        assert again.log.end_offset == end if has_begun or done else old.log.end_offset
        if again.log.end_offset == end:
            follow(ReplicaWriter(again), new)
            assert_equal(again, new)
        else:
            assert_equal(again, old)
        number += 1
    assert number > 6


@pytest.mark.parametrize("gone", range(4))
def test_a_start_finishes_a_cut_that_had_removed_some(
    logs, open_replica, tmp_path, gone
):
    old, new, end = logs(60)
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    result = run(writer.cut_steps(end), 2)
    assert not result
    image = tmp_path / "image"
    shutil.copytree(store.directory.root, image)
    files = sorted((image / "commitlog").iterdir(), reverse=True)
    assert len(files) > 2
    for path in files[: min(gone, 2)]:
        path.unlink()
    if gone == 3:  # a part of the last file is zeroed
        data = bytearray(files[2].read_bytes())
        data[end : end + 4096] = bytes(4096)
        files[2].write_bytes(data)
    again = open_replica("image")
    assert again.log.end_offset == end
    assert f"truncated the log to offset {end}" in " ".join(again.recovery.lines())
    follow(ReplicaWriter(again), new)
    assert_equal(again, new)


def test_without_zeros_what_was_cut_would_come_back(
    logs, open_replica, tmp_path, monkeypatch
):
    """A mutation, which shows that the tests before would notice."""

    def end_last_file(files, end):
        files.files[-1].write_position = end - files.files[-1].base_offset

    old, _, end = logs(100)
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    monkeypatch.setattr(replica_writer, "end_last_file", end_last_file)
    result = run(writer.cut_steps(end))
    assert result
    shutil.copytree(store.directory.root, tmp_path / "image")
    assert open_replica("image").log.end_offset > end


def test_a_deleted_topic_gets_entries_again_after_the_cut(
    logs, open_replica, make_message
):
    old, new, end = logs(100)
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    store.delete_topic("B")()
    result = run(writer.cut_steps(end))
    assert result
    assert store.deleted_topics.ends == {"B": end}
    follow(writer, new)
    theirs = new.queues.get("B", 0)
    assert store.queues.get("B", 0).next_offset == theirs.next_offset


def test_the_file_that_was_prepared_ahead_goes(logs, open_replica):
    old, _, end = logs(60)
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    last = store.log.files.files[-1]
    store.log.allocate(last, last.size)
    store.log.files.prepare_next()
    result = run(writer.cut_steps(end))
    assert result
    store.close()
    assert open_replica().log.end_offset == end


def test_a_cut_that_is_done_twice_is_done_once(logs, open_replica):
    old, _, end = logs(130)
    store = open_replica()
    follow(ReplicaWriter(store), old)
    store.close()
    for _ in range(2):
        CutMark(store.directory.root).save(end)
        again = open_replica()
        assert again.log.end_offset == end
        again.close()


def test_times_that_are_promised_sink(logs, open_replica):
    old, _, end = logs(130)
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    store.flush_queues(thorough=True)
    result = run(writer.cut_steps(end))
    assert result
    checkpoint = store.checkpoint
    last = store.log.last_store_ms
    assert max(checkpoint.physic_msg_ms, checkpoint.logics_msg_ms) <= last
    assert checkpoint.confirm_offset <= end
