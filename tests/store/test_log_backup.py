"""A log that a slave has given up is whole, and another one begins in its place."""

import shutil

import pytest

from rmq.core.errors import StoreError
from rmq.store.config import BrokerRole
from rmq.store.log_backup import LogBackup
from rmq.store.replica_writer import ReplicaWriter
from rmq.tools.store_files import StoreFiles
from rmq.tools.verify import Verification
from tests.store.test_cut import FILE_SIZE, assert_equal, follow, run
from tests.store.test_replica_writer import bytes_of, fill


@pytest.fixture
def open_replica(open_store, tmp_path):
    def open_one(name="replica", **more):
        return open_store(
            tmp_path / name,
            commit_log_file_size=FILE_SIZE,
            broker_role=BrokerRole.SLAVE,
            **more,
        )

    return open_one


@pytest.fixture
def masters(open_store, tmp_path, make_message):
    """Two masters with nothing in common; the log of the second begins later."""
    made = []
    for name, seed, count in (("old", 1, 200), ("new", 2, 300)):
        store = open_store(tmp_path / name, commit_log_file_size=FILE_SIZE)
        fill(store, make_message, count, seed=seed)
        made.append(store)
    made[1].durability.flush()
    first = made[1].log.files.files.pop(0)
    first.unlink()
    first.close()
    return made


def follow_from_its_start(writer, master):
    for start, data in bytes_of(master, master.log.min_offset):
        writer.append(start, data)


def assert_a_copy(store, master):
    assert store.log.min_offset == master.log.min_offset
    start = master.log.min_offset
    assert list(bytes_of(store, start)) == list(bytes_of(master, start))
    for queue in master.queues:
        copy = store.queues.get(queue.topic, queue.queue_id)
        assert copy.next_offset == queue.next_offset
        first = next(
            offset
            for offset in range(queue.next_offset)
            if queue.entry_at(offset)[0] >= start
        )
        for offset in range(first, queue.next_offset):
            assert copy.entry_at(offset) == queue.entry_at(offset)
    assert len(list(store.queues)) == len(list(master.queues))


def index_all(store):
    store.flush_queues(thorough=True)
    while store.index.lag_bytes:
        store.index.build()


@pytest.mark.parametrize("is_flushed", [False, True])
def test_another_log_takes_its_place(masters, open_replica, is_flushed):
    old, new = masters
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    if is_flushed:
        index_all(store)
    aside = LogBackup(store.directory)
    result = run(writer.reseed_steps(aside))
    assert result
    assert writer.is_empty
    assert writer.tail() is None
    assert len(store.queues) == store.positions.durable.value == 0
    assert store.checkpoint.logics_physical_offset == 0
    follow_from_its_start(writer, new)
    assert_a_copy(store, new)
    index_all(store)
    root = store.directory.root
    assert not Verification(StoreFiles(root)).run().damages
    store.close()
    again = open_replica()
    assert_a_copy(again, new)
    assert again.recovery.was_clean
    kept = open_replica(aside.folder)
    assert_equal(kept, old)
    index_all(kept)
    kept.close()
    assert not Verification(StoreFiles(aside.folder)).run().damages


def test_a_kill_at_any_step_leaves_the_old_log_or_an_empty_one(
    masters, open_replica, tmp_path
):
    old, new = masters
    done, number, began = False, 0, 0
    while not done:
        store = open_replica(f"killed{number}")
        offsets = store.directory.config / "consumerOffset.json"
        offsets.write_text("{}")
        writer = ReplicaWriter(store)
        follow(writer, old)
        aside = LogBackup(store.directory)
        done = run(writer.reseed_steps(aside), number)
        image = tmp_path / f"image{number}"
        shutil.copytree(store.directory.root, image)
        again = open_replica(image)
        assert not LogBackup(again.directory).is_unfinished()
        if not again.log.is_empty:
            assert_equal(again, old)
            assert not began
        else:
            began += 1
            follow_from_its_start(ReplicaWriter(again), new)
            assert_a_copy(again, new)
            assert not (again.directory.config / offsets.name).exists()
            [kept] = (image / "aside").iterdir()
            assert (kept / "config" / offsets.name).exists()
            assert_equal(open_replica(kept), old)
        number += 1
    assert began > 4


@pytest.mark.parametrize("count", range(4))
def test_a_start_finishes_moves_that_had_begun(masters, open_replica, count):
    old, new = masters
    store = open_replica()
    writer = ReplicaWriter(store)
    follow(writer, old)
    index_all(store)
    store.close()
    aside = LogBackup(store.directory)
    aside.prepare()
    for name in ("commitlog", "consumequeue", "index")[:count]:
        (store.directory.root / name).rename(aside.folder / name)
    again = open_replica()
    assert again.log.is_empty
    assert f"began with an empty log: {aside}" in " ".join(again.recovery.lines())
    follow_from_its_start(ReplicaWriter(again), new)
    assert_a_copy(again, new)
    assert_equal(open_replica(aside.folder), old)


def test_a_log_outside_the_root_stays_beside_its_place(masters, open_replica, tmp_path):
    old, new = masters
    store = open_replica(commit_log_dir=str(tmp_path / "disk" / "log"))
    writer = ReplicaWriter(store)
    follow(writer, old)
    aside = LogBackup(store.directory)
    result = run(writer.reseed_steps(aside))
    assert result
    follow_from_its_start(writer, new)
    assert_a_copy(store, new)
    kept = tmp_path / "disk" / f"log.{aside.folder.name}"
    assert str(aside).endswith(f"its records in {kept}; rmq never deletes it")
    assert_equal(open_replica(aside.folder, commit_log_dir=str(kept)), old)


def test_a_log_that_cannot_be_renamed_stays(masters, open_replica, tmp_path):
    old, _ = masters
    store = open_replica(commit_log_dir=str(tmp_path / "disk" / ("l" * 250)))
    writer = ReplicaWriter(store)
    follow(writer, old)
    with pytest.raises(StoreError, match=r"cannot rename .* File name too long"):
        run(writer.reseed_steps(LogBackup(store.directory)))
    assert not LogBackup(store.directory).is_unfinished()
    assert not list((store.directory.root / "aside").iterdir())
    assert_equal(store, old)


def test_queues_of_batches_and_timers_go_with_the_log(open_replica):
    store = open_replica()
    names = "batchconsumequeue", "timerlog", "timerwheel"
    for name in names:
        (store.directory.root / name).mkdir()
    aside = LogBackup(store.directory)
    result = run(ReplicaWriter(store).reseed_steps(aside))
    assert result
    for name in names:
        assert (aside.folder / name).is_dir()
        assert not (store.directory.root / name).exists()
