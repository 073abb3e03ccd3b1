"""Entries of one queue over real files of ten entries, and in memory."""

import os

import pytest

from rmq._fastpath.log.queue_tail import TailSet
from rmq.core.errors import CorruptLog, StoreError
from rmq.store.descriptors import DescriptorReserve
from rmq.store.queues.consume_queue import FILLER_SIZE, ConsumeQueue
from rmq.store.queues.queue_files import QueueFiles
from rmq.store.queues.queue_flush import QueueFlush

FILE_SIZE = 200
SIZE = 100


@pytest.fixture
def files():
    files = QueueFiles(FILE_SIZE, DescriptorReserve(0))
    yield files
    files.close()


@pytest.fixture
def new_queue(tmp_path, files):
    """Make the object for the one queue of the test; its files stay."""

    def new():
        files.close()
        folder = f"{tmp_path}/Topic/0"
        return ConsumeQueue("Topic", 0, folder, files, TailSet())

    return new


def fill(queue, count, first=0):
    """Give entries for records of one size, one after the other."""
    for n in range(first, first + count):
        assert queue.publish(n * SIZE, SIZE, n) == n


def flush(queue):
    """Write all entries of a queue to its files."""
    root = str(queue.folder.parent.parent)
    work = QueueFlush([queue], root, FILE_SIZE, DescriptorReserve(0))
    work.write()
    work.release_durable()
    assert work.failure is None


def names(queue):
    if not queue.folder.exists():
        return []
    return sorted(int(path.name) for path in queue.folder.iterdir())


@pytest.mark.parametrize("flushed", [0, 1, 9, 10, 11, 24, 25])
def test_entries_come_back_from_memory_and_files(new_queue, flushed):
    queue = new_queue()
    fill(queue, flushed)
    flush(queue)
    fill(queue, 25 - flushed, first=flushed)
    assert names(queue) == list(range(0, flushed * 20, FILE_SIZE))
    assert [queue.entry_at(n) for n in range(25)] == [
        (n * SIZE, SIZE, n) for n in range(25)
    ]
    assert (queue.min_offset, queue.next_offset) == (0, 25)
    assert queue.end_physical == 25 * SIZE
    for n in range(25):
        data = bytes(queue.read_entries(n, 100))
        assert data[:8] == (n * SIZE).to_bytes(8, "big")
        assert 20 <= len(data) <= 20 * (25 - n)


def test_nothing_is_made_before_a_flush(new_queue):
    queue = new_queue()
    fill(queue, 3)
    assert names(queue) == []
    assert queue.file_of(0) is None
    flush(queue)
    [path] = queue.folder.iterdir()
    assert path.stat().st_size == FILE_SIZE, "Java refuses any other length"


def test_a_file_has_blocks_only_for_entries(tmp_path):
    """Of 300,000 entries in a file of Java's size."""
    files = QueueFiles(6_000_000, DescriptorReserve(0))
    queue = ConsumeQueue("Topic", 0, f"{tmp_path}/Topic/0", files)
    fill(queue, 1)
    work = QueueFlush([queue], str(tmp_path), files.file_size, DescriptorReserve(0))
    work.write()
    work.release_durable()
    [path] = queue.folder.iterdir()
    assert path.stat().st_size == files.file_size
    assert path.stat().st_blocks * 512 <= 4096


@pytest.mark.parametrize("known", [0, 1, 7, 99])
@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 20, 45])
def test_loaded_queue_ends_where_it_was_left(new_queue, count, known):
    queue = new_queue()
    fill(queue, count)
    flush(queue)
    queue = new_queue()
    queue.load(known)
    assert (queue.min_offset, queue.next_offset) == (0, count)
    assert queue.end_physical == (count * SIZE or -1)
    assert not queue.has_more_data
    fill(queue, 3, first=count)
    flush(queue)
    assert queue.entry_at(count + 2) == ((count + 2) * SIZE, SIZE, count + 2)
    assert len(names(queue)) == -(-(count + 3) // 10)


def test_file_of_another_length_stops_the_load(new_queue):
    queue = new_queue()
    fill(queue, 1)
    flush(queue)
    os.truncate(queue.folder / f"{0:020d}", 180)
    with pytest.raises(CorruptLog, match="180 bytes, the configured size is 200"):
        new_queue().load()


def test_a_file_that_was_made_but_has_no_length_is_removed(new_queue):
    queue = new_queue()
    fill(queue, 10)
    flush(queue)
    (queue.folder / f"{200:020d}").touch()
    (queue.folder / "notes").mkdir()
    queue = new_queue()
    queue.load()
    assert queue.next_offset == 10
    assert not (queue.folder / f"{200:020d}").exists()


def test_a_file_that_is_gone_is_named(new_queue):
    queue = new_queue()
    fill(queue, 25)
    flush(queue)
    (queue.folder / f"{0:020d}").unlink()
    with pytest.raises(StoreError, match=r"cannot open .*: No such file"):
        queue.entry_at(0)


@pytest.mark.parametrize("flushed", [0, 12, 25])
@pytest.mark.parametrize("kept", [0, 1, 9, 10, 11, 24, 25])
def test_truncate_drops_entries_and_their_bytes(new_queue, kept, flushed):
    queue = new_queue()
    fill(queue, flushed)
    flush(queue)
    fill(queue, 25 - flushed, first=flushed)
    assert queue.truncate(kept * SIZE) == 25 - kept
    assert queue.next_offset == kept
    assert queue.end_physical == (kept * SIZE or -1)
    assert queue.truncate(kept * SIZE) == 0
    fill(queue, 2, first=kept)
    flush(queue)
    data = b"".join((queue.folder / f"{n:020d}").read_bytes() for n in names(queue))
    assert not data[(kept + 2) * 20 :].strip(b"\0")
    again = new_queue()
    again.load()
    assert again.next_offset == kept + 2
    assert again.entry_at(kept) == (kept * SIZE, SIZE, kept)


def test_truncate_drops_a_record_that_is_half_there(new_queue):
    queue = new_queue()
    fill(queue, 5)
    assert queue.truncate(3 * SIZE + 1) == 2
    assert queue.next_offset == 3


def test_entries_after_a_hole_do_not_come_back(new_queue):
    queue = new_queue()
    fill(queue, 25)
    flush(queue)
    with (queue.folder / f"{200:020d}").open("r+b") as file:
        file.seek(40)
        file.write(bytes(20))
    queue = new_queue()
    queue.load(0, 0)
    assert queue.next_offset == 12
    assert queue.has_more_data
    queue.clear_after()
    assert names(queue) == [0, 200]
    fill(queue, 1, first=12)
    flush(queue)
    again = new_queue()
    again.load()
    assert again.next_offset == 13


def test_first_message_is_not_number_0(new_queue):
    queue = new_queue()
    assert queue.fill_to(23) == 3
    assert queue.end_physical == -1
    assert [queue.entry_at(n) for n in (20, 21, 22)] == [(0, FILLER_SIZE, 0)] * 3
    assert queue.publish(5000, SIZE, 7) == 23
    assert queue.min_offset == 23
    flush(queue)
    assert names(queue) == [400]
    again = new_queue()
    again.load()
    assert (again.low_offset, again.min_offset, again.next_offset) == (20, 23, 24)
    assert again.end_physical == 5000 + SIZE


@pytest.mark.parametrize("flushed", [0, 12])
def test_records_that_are_gone_raise_the_minimum(new_queue, flushed):
    queue = new_queue()
    fill(queue, flushed)
    flush(queue)
    fill(queue, 12 - flushed, first=flushed)
    queue.tails.log_start = 3 * SIZE + 1
    assert queue.min_offset == 4
    queue.tails.log_start = 1_000_000
    assert queue.min_offset == queue.next_offset == 12
    assert queue.publish(1_000_000, SIZE, 0) == 12
    assert queue.min_offset == 12
    assert queue.low_physical == 1_000_000


def test_unused_files_are_counted_and_dropped(new_queue):
    queue = new_queue()
    fill(queue, 35)
    flush(queue)
    assert [queue.first_used_file(n * SIZE) for n in (9, 10, 29, 30, 99)] == [
        0, 200, 400, 600, 600,
    ]  # fmt: skip
    queue.entry_at(3)
    gone = queue.drop_files(400)
    assert queue.drop_files(400) == []
    assert gone == [str(queue.folder / f"{base:020d}") for base in (0, 200)]
    assert (queue.low_offset, queue.min_offset, queue.file_count) == (20, 20, 2)


def test_visible_entries_end_below_the_confirmed_offset(new_queue):
    queue = new_queue()
    assert queue.visible_offset(0) == 0
    fill(queue, 12)
    confirmed = (0, SIZE - 1, SIZE, 11 * SIZE, 12 * SIZE - 1, 12 * SIZE, 10**9)
    expected = [0, 0, 1, 11, 11, 12, 12]
    assert [queue.visible_offset(at) for at in confirmed] == expected
    flush(queue)
    assert [queue.visible_offset(at) for at in confirmed] == expected


def test_queue_that_starts_over_has_no_files(new_queue):
    queue = new_queue()
    fill(queue, 25)
    flush(queue)
    queue.low_offset = 5
    assert queue.start_over() == 20
    assert names(queue) == []
    assert (queue.min_offset, queue.next_offset, queue.end_physical) == (0, 0, -1)
    fill(queue, 1)
    flush(queue)
    assert queue.entry_at(0) == (0, SIZE, 0)
