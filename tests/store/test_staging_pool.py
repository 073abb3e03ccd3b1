"""Messages that wait in memory: who sees them when, and what a kill loses."""

import errno
import os
import shutil

import pytest

from rmq._fastpath import MappedFile
from rmq.errors import LogFailed
from rmq.protocol.records import decode_stored
from rmq.store.config import FlushDiskType
from rmq.store.results import GetStatus, PutStatus
from rmq.store.staging_pool import StagingPool

SIZE = 65536


def bodies(store, queue_id=0):
    found, offset = [], 0
    while data := store.reads.get("Topic", queue_id, offset, 32).body:
        records = decode_stored(data)
        found += [record.body for record in records]
        offset += len(records)
    return found


def killed(store, tmp_path, open_store, **settings):
    """Open what a kill would leave: the files as they are now."""
    image = tmp_path / "image"
    shutil.copytree(store.directory.root, image)
    return open_store(image, **settings)


def test_readers_stop_at_the_committed_offset(open_store, make_message):
    store = open_store(staging_enabled=True)
    put = [store.writes.put(make_message(bytes([n]))) for n in range(3)]
    assert {each.status for each in put} == {PutStatus.PUT_OK}
    assert [each.queue_offset for each in put] == [0, 1, 2]
    assert (store.reads.max_offset("Topic", 0), store.durability.confirm_offset) == (
        0,
        0,
    )
    assert store.reads.get("Topic", 0, 0, 32).status is GetStatus.NO_MESSAGE_IN_QUEUE
    assert store.reads.record_at(put[0].physical_offset) is None
    assert store.reads.store_time_at("Topic", 0, 0) == -1
    assert store.index.lag == 0
    assert store.durability.uncommitted_size == store.log.end_offset
    store.durability.commit()
    assert store.durability.confirm_offset == store.log.end_offset == put[-1].end_offset
    assert bodies(store) == [b"\0", b"\1", b"\2"]
    assert store.reads.store_time_at("Topic", 0, 2) == put[2].store_ms
    assert store.durability.durable.value == 0


def test_a_flush_commits_first(open_store, make_message):
    store = open_store(staging_enabled=True)
    end = store.writes.put(make_message()).end_offset
    store.durability.flush()
    assert store.durability.durable.value == store.durability.confirm_offset == end


def test_a_kill_loses_what_was_not_committed_and_nothing_else(
    open_store, make_message, tmp_path
):
    store = open_store(staging_enabled=True)
    for n in range(50):
        store.writes.put(make_message(bytes([n])))
    store.durability.commit()
    for n in range(50, 80):
        store.writes.put(make_message(bytes([n])))
    again = killed(store, tmp_path, open_store)
    assert bodies(again) == [bytes([n]) for n in range(50)]
    assert again.recovery.entries_dropped == 30
    assert not again.recovery.cuts
    assert again.writes.put(make_message(b"next")).queue_offset == 50


def test_a_close_keeps_everything(open_store, make_message):
    store = open_store(staging_enabled=True)
    for n in range(80):
        store.writes.put(make_message(bytes([n])))
    store.close()
    again = open_store(staging_enabled=True)
    assert again.recovery.was_clean
    assert len(bodies(again)) == 80
    assert (
        again.writes.put(make_message(b"in a file that was there")).queue_offset == 80
    )
    again.durability.commit()
    assert len(bodies(again)) == 81


@pytest.mark.parametrize("pool_size", [1, 5])
def test_files_roll_while_earlier_ones_wait(open_store, make_message, pool_size):
    """With one buffer the second file is written directly."""
    store = open_store(staging_enabled=True, staging_pool_size=pool_size)
    for n in range(40):
        assert (
            store.writes.put(make_message(bytes([n]) * 5_000)).status
            is PutStatus.PUT_OK
        )
    files = sorted(store.directory.commit_log.iterdir())
    assert len(files) == 4
    assert store.reads.max_offset("Topic", 0) == 0
    is_empty = [not any(path.read_bytes()) for path in files]
    assert is_empty == [True, *[pool_size > 1] * 3]
    store.durability.commit()
    assert bodies(store) == [bytes([n]) * 5_000 for n in range(40)]


def test_a_buffer_is_used_again_once_its_file_is_full(tmp_path):
    pool = StagingPool(1, SIZE)
    first, second, third = [
        MappedFile(str(tmp_path / str(n)), SIZE, base_offset=n * SIZE, create=True)
        for n in range(3)
    ]
    for file in (first, second, third):
        file.allocate(SIZE)
    pool.lend(first)
    pool.lend(second)
    assert (first.is_staged, second.is_staged) == (True, False)
    first.append(b"x" * SIZE)
    with pytest.raises(ValueError, match="not committed"):
        pool.take_back(first)
    assert first.commit() == SIZE
    pool.take_back(first)
    assert first.read(0, SIZE) == b"x" * SIZE
    pool.lend(third)
    assert third.is_staged
    third.append(b"y")
    third.commit()
    assert third.read(0, 3) == b"y\0\0"


def test_a_commit_that_fails_ends_all_writing(open_store, make_message, monkeypatch):
    store = open_store(staging_enabled=True)
    store.writes.put(make_message())

    def broken():
        raise OSError(errno.EIO, os.strerror(errno.EIO), "the log")

    monkeypatch.setattr(store.log, "commit_staged", broken)
    with pytest.raises(LogFailed, match="Input/output"):
        store.durability.commit()
    assert store.writes.put(make_message()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert "writing the log failed" in store.durability.refuse_reason
    monkeypatch.undo()
    store.close()
    assert store.directory.abort.is_set


def test_sync_flush_has_no_use_for_it(open_store, make_message):
    store = open_store(staging_enabled=True, flush_disk_type=FlushDiskType.SYNC_FLUSH)
    end = store.writes.put(make_message()).end_offset
    store.durability.flush()
    assert store.durability.confirm is store.durability.durable
    assert store.durability.confirm_offset == end


def test_the_checkpoint_is_not_ahead_of_the_disk(open_store, make_message, clock):
    store = open_store(staging_enabled=True)
    end = store.writes.put(make_message()).end_offset
    first_ms = clock.ms
    store.durability.commit()
    clock.ms += 1_000
    store.writes.put(make_message())
    original = store.log.flush

    def flush_of_what_was_committed(durable):
        original(durable)
        assert durable.value == end

    store.durability.commit = lambda: None
    store.log.flush = flush_of_what_was_committed
    store.flush_queues(thorough=True)
    assert store.checkpoint.logics_physical_offset == end
    assert store.checkpoint.physic_msg_ms == first_ms
