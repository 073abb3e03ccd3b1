"""Blocks in windows, ahead of the writer."""

import errno
import os

import pytest

from rmq.core.errors import DiskFull, StoreError
from rmq.store import allocate
from rmq.store.allocate import FileAllocator

WINDOW = 16 * 1024
SIZE = 100_000


@pytest.fixture
def allocator():
    return FileAllocator(WINDOW)


@pytest.fixture
def file(tmp_path, allocator):
    return allocator.create(tmp_path, 0, SIZE)


class BrokenFile:
    """A file that gets no blocks."""

    allocated = 0
    size = SIZE
    path = "the file"

    def __init__(self, number):
        self.number = number

    def allocate(self, _end):
        raise OSError(self.number, os.strerror(self.number), self.path)


def test_created_file_has_its_length_and_one_window(tmp_path, allocator):
    file = allocator.create(tmp_path / "a" / "b", 4096, SIZE)
    path = tmp_path / "a" / "b" / f"{4096:020d}"
    assert file.path == str(path)
    assert (file.base_offset, file.write_position) == (4096, 0)
    assert file.allocated == WINDOW
    assert path.stat().st_size == SIZE
    assert path.stat().st_blocks * 512 < 2 * WINDOW


def test_file_smaller_than_a_window_is_allocated_whole(tmp_path, allocator):
    assert allocator.create(tmp_path, 0, 200).allocated == 200


@pytest.mark.parametrize(
    ("end", "allocated"),
    [
        (0, WINDOW),
        (WINDOW, WINDOW),
        (WINDOW + 1, 2 * WINDOW),
        (3 * WINDOW, 3 * WINDOW),
        (SIZE - 1, SIZE),
        (SIZE, SIZE),
    ],
)
def test_blocks_come_in_whole_windows(allocator, file, end, allocated):
    allocator.allocate_up_to(file, end)
    assert file.allocated == allocated


def test_a_late_writer_allocates_one_part(tmp_path):
    part = allocate.PART_SIZE
    allocator = FileAllocator(4 * part)
    file = allocator.create(tmp_path, 0, 8 * part)
    assert file.allocated == part
    allocator.allocate_up_to(file, part + 1)
    assert file.allocated == 2 * part
    file.write_position = part + 1
    allocator.run_ahead(file)
    assert file.allocated == 4 * part


def test_more_is_wanted_when_half_of_a_window_is_used(allocator, file):
    for position, wanted in ((0, False), (WINDOW // 2, False), (WINDOW // 2 + 1, True)):
        file.write_position = position
        assert allocator.wants_more(file) is wanted
    allocator.run_ahead(file)
    assert file.allocated == 2 * WINDOW
    allocator.run_ahead(file)
    assert file.allocated == 2 * WINDOW
    allocator.allocate_up_to(file, SIZE)
    file.write_position = SIZE
    assert not allocator.wants_more(file)


def test_end_is_near_within_a_window(allocator, file):
    for position, is_near in (
        (0, False),
        (SIZE - WINDOW, False),
        (SIZE - WINDOW + 1, 1),
    ):
        file.write_position = position
        assert allocator.is_near_end(file) == is_near


def test_end_of_a_small_file_is_near_in_its_second_half(tmp_path, allocator):
    file = allocator.create(tmp_path, 0, 200)
    for position, is_near in ((0, False), (100, False), (101, True), (200, True)):
        file.write_position = position
        assert allocator.is_near_end(file) is is_near


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_full_disk_and_quota_are_told_apart_from_the_rest(allocator, number):
    with pytest.raises(DiskFull, match="no disk space for the file"):
        allocator.allocate_up_to(BrokenFile(number), 1)


def test_other_errors_name_the_file(allocator):
    with pytest.raises(StoreError, match="cannot write the file: Input") as caught:
        allocator.allocate_up_to(BrokenFile(errno.EIO), 1)
    assert not isinstance(caught.value, DiskFull)


def test_lock_is_free_after_a_failure(allocator, file):
    with pytest.raises(DiskFull):
        allocator.allocate_up_to(BrokenFile(errno.ENOSPC), 1)
    allocator.allocate_up_to(file, SIZE)
    assert file.allocated == SIZE


def test_folder_that_cannot_be_made(tmp_path, allocator):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(StoreError, match="cannot write"):
        allocator.create(tmp_path / "taken", 0, SIZE)


def test_file_that_cannot_be_opened(tmp_path, allocator, monkeypatch):
    def refuse(path, *_, **__):
        raise OSError(errno.ENOSPC, "No space left on device", path)

    monkeypatch.setattr(allocate, "MappedFile", refuse)
    with pytest.raises(DiskFull):
        allocator.create(tmp_path, 0, SIZE)


def test_file_is_taken_over_after_a_failed_try(tmp_path, allocator):
    path = tmp_path / f"{0:020d}"
    path.touch()
    file = allocator.create(tmp_path, 0, SIZE)
    assert path.stat().st_size == SIZE
    assert not file.read(0, SIZE).strip(b"\0")


def test_file_of_another_length_is_left_alone(tmp_path, allocator):
    path = tmp_path / f"{0:020d}"
    path.write_bytes(b"something else")
    with pytest.raises(StoreError, match="14 bytes instead of 100000"):
        allocator.create(tmp_path, 0, SIZE)
    assert path.read_bytes() == b"something else"


def test_the_worker_writes_zeros_and_the_writer_does_not_wait(tmp_path, monkeypatch):
    monkeypatch.setattr(allocate, "PART_SIZE", 4096)
    written = []
    original = allocate.write_zeros

    def noted(descriptor, start, stop):
        written.append((start, stop))
        original(descriptor, start, stop)

    monkeypatch.setattr(allocate, "write_zeros", noted)
    allocator = FileAllocator(WINDOW, zeroes=True)
    file = allocator.create(tmp_path, 0, SIZE)
    assert (file.allocated, written) == (4096, [])
    file.append(b"x" * 4096)
    allocator.allocate_up_to(file, 4097)
    assert (file.allocated, written) == (8192, [])
    allocator.run_ahead(file)
    assert file.allocated == WINDOW
    assert written == [(8192, 12288), (12288, WINDOW)]
    assert file.read(0, WINDOW) == b"x" * 4096 + bytes(WINDOW - 4096)
    assert not allocator.wants_more(file)


def test_a_full_disk_shows_when_zeros_are_written(tmp_path, monkeypatch):
    def full(_descriptor, _start, _stop):
        raise OSError(errno.ENOSPC, "No space left on device")

    allocator = FileAllocator(4 << 20, zeroes=True)
    file = allocator.create(tmp_path, 0, 8 << 20)
    monkeypatch.setattr(allocate, "write_zeros", full)
    with pytest.raises(DiskFull):
        allocator.run_ahead(file)
    assert file.allocated == 1 << 20
