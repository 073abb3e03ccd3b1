"""Entries of one queue over real files of ten entries."""

import errno
import os
import sys
import threading

import pytest

from rmq.errors import CorruptLog
from rmq.store.consume_queue import FILLER_SIZE, ConsumeQueue
from rmq.store.consume_queues import ConsumeQueues, MappedQueueFiles
from rmq.store.descriptors import DescriptorReserve

FILE_SIZE = 200
SIZE = 100


@pytest.fixture
def files():
    files = MappedQueueFiles(FILE_SIZE, DescriptorReserve(0))
    yield files
    files.close()


@pytest.fixture
def new_queue(tmp_path, files):
    """Make the object for the one queue of the test; its files stay."""

    def new():
        files.drop(tmp_path / "Topic" / "0")
        folder = tmp_path / "Topic" / "0"
        folder.mkdir(parents=True, exist_ok=True)
        return ConsumeQueue("Topic", 0, folder, files, FILE_SIZE)

    return new


@pytest.fixture
def queues(tmp_path):
    queues = ConsumeQueues(tmp_path, FILE_SIZE, DescriptorReserve(0))
    yield queues
    queues.close()


def fill(queue, count, first=0):
    """Give entries for records of one size, one behind the other."""
    for n in range(first, first + count):
        queue.prepare()
        assert queue.publish(n * SIZE, SIZE, n) == n


def names(queue):
    return sorted(int(path.name) for path in queue.folder.iterdir())


def test_entries_come_back_over_files(new_queue):
    queue = new_queue()
    fill(queue, 25)
    assert names(queue) == [0, 200, 400]
    assert [queue.entry(n) for n in range(25)] == [
        (n * SIZE, SIZE, n) for n in range(25)
    ]
    assert (queue.min_offset, queue.next_offset) == (0, 25)
    assert queue.end_physical == 25 * SIZE


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 45])
def test_loaded_queue_ends_where_it_was_left(new_queue, count):
    fill(new_queue(), count)
    queue = new_queue()
    queue.load()
    assert (queue.min_offset, queue.next_offset) == (0, count)
    assert queue.end_physical == (count * SIZE or -1)
    fill(queue, 3, first=count)
    assert queue.entry(count + 2) == ((count + 2) * SIZE, SIZE, count + 2)


def test_file_of_another_length_stops_the_load(new_queue):
    queue = new_queue()
    fill(queue, 1)
    os.truncate(queue.folder / f"{0:020d}", 180)
    with pytest.raises(CorruptLog, match="180 bytes, the configured size is 200"):
        new_queue().load()


@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 24, 25])
def test_truncate_drops_entries_and_their_bytes(new_queue, kept):
    queue = new_queue()
    fill(queue, 25)
    assert queue.truncate(kept * SIZE) == 25 - kept
    assert queue.next_offset == kept
    assert queue.end_physical == (kept * SIZE or -1)
    assert queue.truncate(kept * SIZE) == 0
    behind = b"".join(path.read_bytes() for path in sorted(queue.folder.iterdir()))
    assert not behind[kept * 20 :].strip(b"\0")
    fill(queue, 2, first=kept)
    again = new_queue()
    again.load()
    assert again.next_offset == kept + 2


def test_truncate_drops_a_record_that_is_half_there(new_queue):
    queue = new_queue()
    fill(queue, 5)
    assert queue.truncate(3 * SIZE + 1) == 2
    assert queue.next_offset == 3


def test_entries_behind_a_hole_do_not_come_back(new_queue):
    queue = new_queue()
    fill(queue, 25)
    with (queue.folder / f"{200:020d}").open("r+b") as file:
        file.seek(40)
        file.write(bytes(20))
    queue = new_queue()
    queue.load()
    assert queue.next_offset == 12
    queue.clear_behind()
    assert names(queue) == [0, 200]
    fill(queue, 1, first=12)
    again = new_queue()
    again.load()
    assert again.next_offset == 13


def test_reserved_entries_cannot_fail(new_queue, files):
    queue = new_queue()
    fill(queue, 5)
    queue.reserve(30)
    assert names(queue) == [0, 200, 400, 600]
    assert [
        files.open(queue.folder, base).allocated for base in (0, 200, 400, 600)
    ] == [200] * 4
    fill(queue, 30, first=5)
    assert names(queue) == [0, 200, 400, 600]


def test_first_message_is_not_number_0(new_queue):
    queue = new_queue()
    queue.fill_to(23)
    assert names(queue) == [400]
    assert queue.end_physical == -1
    assert [queue.entry(n) for n in (20, 21, 22)] == [(0, FILLER_SIZE, 0)] * 3
    queue.prepare()
    assert queue.publish(5000, SIZE, 7) == 23
    queue.skip_removed(0)
    assert queue.min_offset == 23
    again = new_queue()
    again.load()
    assert (again.min_offset, again.next_offset) == (20, 24)
    assert again.end_physical == 5000 + SIZE


def test_records_that_are_gone_raise_the_minimum(new_queue):
    queue = new_queue()
    fill(queue, 12)
    queue.skip_removed(3 * SIZE + 1)
    assert queue.min_offset == 4
    queue.skip_removed(1_000_000)
    assert queue.min_offset == queue.next_offset == 12


def test_visible_entries_end_below_the_confirmed_offset(new_queue):
    queue = new_queue()
    assert queue.visible_offset(0) == 0
    fill(queue, 12)
    confirmed = (0, SIZE - 1, SIZE, 11 * SIZE, 12 * SIZE - 1, 12 * SIZE, 10**9)
    assert [queue.visible_offset(at) for at in confirmed] == [0, 0, 1, 11, 11, 12, 12]


def test_first_entry_at_or_above(new_queue):
    queue = new_queue()
    fill(queue, 12)
    places = (0, 1, SIZE, 11 * SIZE, 11 * SIZE + 1)
    assert [queue.first_at_or_above(at) for at in places] == [0, 1, 1, 11, 12]


def test_queue_that_starts_over_has_no_files(new_queue):
    queue = new_queue()
    fill(queue, 25)
    queue.min_offset = 5
    assert queue.start_over() == 20
    assert names(queue) == []
    assert (queue.min_offset, queue.next_offset, queue.end_physical) == (0, 0, -1)
    fill(queue, 1)
    assert queue.entry(0) == (0, SIZE, 0)


def test_registry_leaves_foreign_folders_alone(tmp_path, queues):
    fill(queues.get_or_create("Topic", 3), 2)
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
    assert queues.delete_topic("Topic") == 3
    assert [path.name for path in tmp_path.iterdir()] == ["Other"]
    assert (len(queues), len(queues.files)) == (1, 1)


@pytest.mark.parametrize(("least_pages", "left"), [(0, 0), (1, 1)])
def test_flush_takes_dirty_and_full_files(queues, least_pages, left):
    fill(queues.get_or_create("Topic", 0), 15)
    assert len(queues.files.dirty()) == 2
    queues.flush(least_pages)
    assert len(queues.files.dirty()) == left


def test_topic_may_go_while_its_files_are_flushed(queues, monkeypatch):
    """The worker has its list; then the other thread closes a file of it."""
    fill(queues.get_or_create("Gone", 0), 1)
    fill(queues.get_or_create("Kept", 0), 1)
    dirty = queues.files.dirty()
    queues.delete_topic("Gone")
    monkeypatch.setattr(queues.files, "dirty", lambda: dirty)
    queues.flush(0)
    assert [file.flushed_position for file in dirty] == [0, 20]


def test_topic_goes_although_a_flush_holds_its_file(tmp_path, queues):
    queue = queues.get_or_create("Topic", 0)
    fill(queue, 1)
    [file] = queues.files.dirty()
    file.hold()
    assert queues.delete_topic("Topic") == 1
    assert not (tmp_path / "Topic").exists()
    file.flush()
    file.release()
    fill(queues.get_or_create("Topic", 0), 1)
    assert queues.get("Topic", 0).entry(0) == (0, SIZE, 0)


def test_worker_lists_files_while_others_are_opened(tmp_path, queues):
    files = queues.files
    folders = [tmp_path / str(n) for n in range(40)]
    for folder in folders:
        files.open(folder, 0, create=True)
    failures, is_over = [], threading.Event()

    def work():
        try:
            while not is_over.is_set():
                files.dirty()
        except RuntimeError as error:
            failures.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(40):
            for folder in folders:
                files.open(folder, 0)
    finally:
        is_over.set()
        thread.join()
        sys.setswitchinterval(interval)
    assert not failures


def test_held_files_are_not_given_up(tmp_path, queues):
    files = queues.files
    files.limit = 2
    held = files.open(tmp_path / "held", 0, create=True)
    held.hold()
    others = [files.open(tmp_path / str(n), 0, create=True) for n in range(5)]
    assert not held.is_closed
    assert [file.is_closed for file in others[:3]] == [True] * 3
    assert len(files) <= 3
    held.release()


def test_what_was_given_up_unflushed_is_flushed_by_name(queues, monkeypatch):
    """Also where the queue went on meanwhile: nothing is called durable too early."""
    queues.files.limit = 2
    busy = queues.get_or_create("Topic", 0)
    fill(busy, 1)
    first = busy.file
    for queue_id in range(1, 6):
        fill(queues.get_or_create("Topic", queue_id), 1)
    assert first.is_closed
    assert len(queues.files) == 2
    fill(busy, 1, first=1)
    synced, fdatasync = [], os.fdatasync

    def noted(descriptor):
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fdatasync(descriptor)

    monkeypatch.setattr(os, "fdatasync", noted)
    queues.flush(4)
    assert synced == []
    queues.flush(0)
    folders = [queues.get("Topic", n).folder for n in range(5)]
    assert sorted(synced) == [str(folder / f"{0:020d}") for folder in folders]
    assert queues.files.dirty() == []
    queues.flush(0)
    assert len(synced) == 5
    assert [busy.entry(n)[1] for n in range(2)] == [SIZE] * 2


def test_a_failed_flush_of_a_queue_is_remembered(queues, monkeypatch, caplog):
    """The next one succeeds without the entries: the checkpoint must not move."""
    queues.files.limit = 1
    for queue_id in range(2):
        fill(queues.get_or_create("Topic", queue_id), 1)

    def broken(_descriptor):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(OSError, match="Input/output"):
            queues.flush(0)
    queues.flush(0)
    assert queues.has_lost_entries
    assert "the next start rebuilds queues from the log" in caplog.text


def test_no_descriptors_is_no_failed_flush(queues, monkeypatch):
    queues.files.limit = 1
    for queue_id in range(2):
        fill(queues.get_or_create("Topic", queue_id), 1)

    def none_left(*_arguments):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", none_left)
        with pytest.raises(OSError, match="Too many"):
            queues.flush(0)
    assert not queues.has_lost_entries
    synced = []
    monkeypatch.setattr(os, "fdatasync", synced.append)
    queues.flush(0)
    assert len(synced) == 1
