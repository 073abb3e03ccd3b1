"""The registry of queues, its flush and its cleaning."""

import errno
import os

import pytest

from rmq.core.errors import DiskFull, StoreError
from rmq.store.descriptors import DescriptorReserve
from rmq.store.queues import queue_flush
from rmq.store.queues.consume_queues import ConsumeQueues

FILE_SIZE = 200
SIZE = 100


@pytest.fixture
def queues(tmp_path):
    queues = ConsumeQueues(tmp_path, FILE_SIZE, DescriptorReserve(0))
    yield queues
    queues.close()


def fill(queue, count, first=0):
    for n in range(first, first + count):
        assert queue.publish(n * SIZE, SIZE, n) == n


def unflushed(queues):
    return {q.queue_id: q.next_offset - q.flushed_offset for q in queues}


def test_registry_leaves_foreign_folders_alone(tmp_path, queues):
    fill(queues.get_or_create("Topic", 3), 2)
    queues.flush()
    (tmp_path / "Topic" / "notes").mkdir()
    (tmp_path / "Topic" / "4").write_text("a file")
    (tmp_path / "README").write_text("a file")
    again = ConsumeQueues(tmp_path, FILE_SIZE, DescriptorReserve(0))
    foreign = again.load()
    assert sorted(path.name for path in foreign) == ["4", "notes"]
    assert [(queue.topic, queue.queue_id) for queue in again] == [("Topic", 3)]
    assert again.get("Topic", 4) is None
    again.close()


def test_deleted_topic_leaves_no_files(tmp_path, queues):
    for queue_id in range(3):
        fill(queues.get_or_create("Topic", queue_id), 15)
    fill(queues.get_or_create("Other", 0), 1)
    queues.flush()
    queues.get("Topic", 0).entry_at(0)
    queues.get("Other", 0)
    assert queues.delete_topic("Topic") == 3
    queues.remove_deleted({"Topic"})
    assert [path.name for path in tmp_path.iterdir()] == ["Other"]
    assert (len(queues), len(queues.files)) == (1, 0)
    assert queues.delete_topic("Topic") == 0


@pytest.mark.parametrize(("least_pages", "left"), [(0, 0), (1, 1)])
def test_flush_takes_what_is_unflushed_or_waits(queues, least_pages, left):
    fill(queues.get_or_create("Topic", 0), 1)
    fill(queues.get_or_create("Topic", 1), 4096 // 20)
    queues.flush(least_pages)
    assert unflushed(queues) == {0: left, 1: 0}
    queues.flush(0)
    assert unflushed(queues) == {0: 0, 1: 0}
    assert list(queues.flush_steps(0)) == []


def test_entries_that_come_during_a_flush_wait_for_the_next(queues):
    queue = queues.get_or_create("Topic", 0)
    fill(queue, 5)
    for step in queues.flush_steps(0):
        step()
        fill(queue, 3, first=5)
    assert (queue.flushed_offset, queue.next_offset) == (5, 8)
    queues.flush()
    again = ConsumeQueues(queue.folder.parent.parent, FILE_SIZE, DescriptorReserve(0))
    again.load()
    assert again.get("Topic", 0).next_offset == 8


@pytest.mark.parametrize("has_run", [False, True])
def test_a_flush_that_is_given_up_forgets_nothing(queues, has_run):
    """The broker stops: what was not confirmed is in the last flush."""
    for queue_id in range(2 * queue_flush.GROUP_SIZE):
        fill(queues.get_or_create("Topic", queue_id), 1)
    steps = queues.flush_steps(0)
    step = next(steps)
    if has_run:
        step()
    steps.close()
    left = sum(unflushed(queues).values())
    assert left == queue_flush.GROUP_SIZE * (1 if has_run else 2)
    queues.flush()
    assert sum(unflushed(queues).values()) == 0


@pytest.fixture
def copied(monkeypatch):
    """Let a flush copy at most 15 entries; the numbers that the flushes have copied."""
    monkeypatch.setattr(queue_flush, "COPIED_SIZE", 300)
    counts = []
    original = queue_flush.write_entries

    def counted(writes, *others):
        counts.append(sum(len(entries) for _, _, entries, _ in writes) // 20)
        return original(writes, *others)

    monkeypatch.setattr(queue_flush, "write_entries", counted)
    return counts


def test_a_step_copies_a_bounded_part(tmp_path, queues, copied):
    """A queue that grows during its flush leaves the new entries for the next one."""
    for queue_id, count in enumerate((40, 3, 0, 22)):
        fill(queues.get_or_create("Topic", queue_id), count)
    grown = queues.get("Topic", 0)
    for step in queues.flush_steps(0):
        step()
        fill(grown, 1, first=grown.next_offset)
    assert max(copied) == 15
    assert 65 <= sum(copied) < 65 + 15
    assert unflushed(queues)[1] == unflushed(queues)[3] == 0
    queues.flush()
    again = ConsumeQueues(tmp_path, FILE_SIZE, DescriptorReserve(0))
    again.load()
    assert again.get("Topic", 0).next_offset == grown.next_offset > 40
    assert again.get("Topic", 3).entry_at(21) == (21 * SIZE, SIZE, 21)
    again.close()


@pytest.mark.parametrize("done", range(5))
def test_a_flush_in_parts_that_is_given_up_forgets_nothing(queues, copied, done):
    fill(queues.get_or_create("Topic", 0), 40)
    fill(queues.get_or_create("Topic", 1), 20)
    steps = queues.flush_steps(0)
    for _ in range(done):
        next(steps)()
    steps.close()
    queues.flush()
    assert unflushed(queues) == {0: 0, 1: 0}
    assert sum(copied) >= 60


def test_a_queue_that_is_truncated_between_two_parts(queues, copied):
    queue = queues.get_or_create("Topic", 0)
    fill(queue, 40)
    for step in queues.flush_steps(0):
        step()
        if queue.next_offset == 40:
            queue.truncate_to(20, 20 * SIZE)
    assert (queue.flushed_offset, queue.next_offset) == (20, 20)


@pytest.mark.parametrize("is_back", [False, True])
def test_topic_may_go_while_its_files_are_written(tmp_path, queues, is_back):
    """Its files are removed again; a new topic of this name has its own entries."""
    fill(queues.get_or_create("Gone", 0), 15)
    fill(queues.get_or_create("Kept", 0), 1)
    for step in queues.flush_steps(0):
        queues.delete_topic("Gone")
        step()
        if is_back:
            fill(queues.get_or_create("Gone", 0), 2)
    assert [path.name for path in tmp_path.iterdir()] == ["Kept"]
    queues.flush()
    again = ConsumeQueues(tmp_path, FILE_SIZE, DescriptorReserve(0))
    again.load()
    expected = {"Kept": 1, "Gone": 2} if is_back else {"Kept": 1}
    assert {queue.topic: queue.next_offset for queue in again} == expected


@pytest.mark.parametrize(
    ("error", "kind"), [(errno.ENOSPC, DiskFull), (errno.EIO, StoreError)]
)
def test_a_failed_write_is_repeated(queues, monkeypatch, error, kind):
    """One broken file does not stop the flush of the others."""
    for queue_id in range(3):
        fill(queues.get_or_create("Topic", queue_id), 1)
    write = queue_flush.write_entries

    def broken(writes, folders, file_size):
        done = write(writes, folders, file_size)
        return [
            error if path.endswith(b"/1/%020d" % 0) else code
            for code, (path, *_) in zip(done, writes, strict=True)
        ]

    with monkeypatch.context() as patch:
        patch.setattr(queue_flush, "write_entries", broken)
        with pytest.raises(kind, match="Topic/1/0000"):
            queues.flush()
    assert unflushed(queues) == {0: 0, 1: 1, 2: 0}
    queues.flush()
    assert unflushed(queues) == {0: 0, 1: 0, 2: 0}


def test_a_folder_that_cannot_be_synced_confirms_nothing(queues, monkeypatch):
    def broken(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO), "/folder")

    fill(queues.get_or_create("Topic", 0), 1)
    with monkeypatch.context() as patch:
        patch.setattr(queue_flush, "write_entries", broken)
        with pytest.raises(StoreError, match="cannot write /folder"):
            queues.flush()
    assert unflushed(queues) == {0: 1}


def test_without_a_descriptor_the_reserve_gives_one(tmp_path, monkeypatch):
    short = [True]
    write = queue_flush.write_entries

    def written(writes, folders, file_size):
        if short.pop() if short else False:
            return [errno.EMFILE] * len(writes)
        return write(writes, folders, file_size)

    reserve = DescriptorReserve(1)
    reserve.open_reserve()
    queues = ConsumeQueues(tmp_path, FILE_SIZE, reserve)
    fill(queues.get_or_create("Topic", 0), 1)
    monkeypatch.setattr(queue_flush, "write_entries", written)
    queues.flush()
    assert unflushed(queues) == {0: 0}
    queues.close()
    reserve.close()


def test_cleaning_looks_only_at_queues_with_files_to_lose(tmp_path, queues):
    for queue_id in range(100):
        fill(queues.get_or_create("Topic", queue_id), 1)
    for queue_id in (100, 101):
        fill(queues.get_or_create("Topic", queue_id), 25)
    queues.flush()
    for step in queues.clean_steps(10 * SIZE):
        step()
    left = sorted(path.name for path in (tmp_path / "Topic" / "100").iterdir())
    assert [int(name) for name in left] == [200, 400]
    assert queues.get("Topic", 0).min_offset == 1
    assert queues.get("Topic", 100).min_offset == 10
    for step in queues.clean_steps(99 * SIZE):
        step()
    assert len(list((tmp_path / "Topic" / "100").iterdir())) == 1
    assert list(queues.clean_steps(100 * SIZE)) == []


def test_a_topic_may_go_while_it_is_cleaned(queues):
    fill(queues.get_or_create("Topic", 0), 25)
    queues.flush()
    for step in queues.clean_steps(15 * SIZE):
        queues.delete_topic("Topic")
        step()
