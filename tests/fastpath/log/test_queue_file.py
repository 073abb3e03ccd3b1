"""Queue files that are opened for a moment, over real files."""

import errno
import os
import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmq._fastpath.log.queue_file import (
    clear_entries,
    find_entries_end,
    read_entry_at,
    write_entries,
)
from tests.model.queue_scan import FILLER_SIZE, Entry

FILE_SIZE = 100_000
CERTAIN = 1 << 62


def encode(count, first=0):
    return b"".join(
        Entry(100 * n, 100, n).encode() for n in range(first, first + count)
    )


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return os.fsencode(tmp_path_factory.mktemp("queue") / f"{0:020d}")


def fill(path, data, size=FILE_SIZE):
    with open(path, "wb") as file:
        file.truncate(size)
        file.write(data)


def test_new_files_get_folders_their_size_and_their_entries(tmp_path):
    paths = [os.fsencode(tmp_path / f"T{n}" / "7" / f"{0:020d}") for n in range(200)]
    entries = encode(3)
    folders = [os.fsencode(tmp_path), os.fsencode(tmp_path / "T0"), b"/none"]
    before = len(os.listdir("/proc/self/fd"))
    done = write_entries([(p, 0, entries, True) for p in paths], folders, FILE_SIZE)
    assert done == [0] * 200
    for p in paths:
        assert os.stat(p).st_size == FILE_SIZE
        assert os.stat(p).st_blocks * 512 <= 4096
        assert find_entries_end(p, FILE_SIZE, 0, 0) == (60, False, 0, 200, 100)
    again = [(p, 60, encode(1, 3), False) for p in paths[:1]]
    assert write_entries(again, [], FILE_SIZE) == [0]
    assert find_entries_end(paths[0], FILE_SIZE, 0, 0)[0] == 80
    assert len(os.listdir("/proc/self/fd")) <= before


def test_each_write_has_its_own_error(tmp_path):
    good, gone = (os.fsencode(tmp_path / name) for name in ("good", "gone"))
    blocked = os.fsencode(tmp_path / "file" / "0" / "0")
    (tmp_path / "file").write_text("")
    done = write_entries(
        [(gone, 0, b"x", False), (good, 0, b"x", True), (blocked, 0, b"x", True)],
        [],
        FILE_SIZE,
    )
    assert done == [errno.ENOENT, 0, errno.ENOTDIR]


def test_few_descriptors_are_enough(tmp_path):
    """Five, for 40 files; none at all is an error of each file."""
    writes = [(os.fsencode(tmp_path / str(n)), 0, b"x", True) for n in range(40)]
    used = max(int(name) for name in os.listdir("/proc/self/fd")) + 1
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    holders = [os.open(os.devnull, os.O_RDONLY) for _ in range(5)]
    top = max([used, *holders]) + 1
    fillers = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (top, limits[1]))
        while True:
            try:
                fillers.append(os.open(os.devnull, os.O_RDONLY))
            except OSError:
                break
        assert write_entries(writes, [], 100) == [errno.EMFILE] * 40
        for holder in holders:
            os.close(holder)
        assert write_entries(writes, [], 100) == [0] * 40
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for filler in fillers:
            os.close(filler)


@given(
    count=st.integers(0, 2_000),
    garbage=st.lists(st.integers(0, 3_000), max_size=3),
    known=st.integers(0, 2_500),
    durable=st.integers(0, 2_500),
)
@settings(max_examples=80)
def test_the_end_is_found_as_by_a_walk(path, count, garbage, known, durable):
    """Entries that are promised are there; later ones may be there after a hole."""
    data = bytearray(encode(count).ljust(FILE_SIZE, b"\0"))
    for number in garbage:
        if number > count:
            data[20 * number : 20 * number + 20] = Entry(100 * number, 100, 0).encode()
    fill(path, data)
    end = 20 * count
    rest = bytes(data[end:FILE_SIZE]).strip(b"\0")
    known, durable = min(known, count), 100 * min(durable, count)
    last = (100 * (count - 1), 100) if count else (-1, -1)
    assert find_entries_end(path, FILE_SIZE, known, durable) == (
        end,
        bool(rest),
        0 if count else -1,
        *last,
    )


def test_a_promise_that_is_not_kept_is_no_end(path):
    fill(path, encode(5))
    assert find_entries_end(path, FILE_SIZE, 80, CERTAIN)[0] == 100
    fill(path, encode(4_000))
    assert find_entries_end(path, FILE_SIZE, 0, CERTAIN)[0] == 80_000
    assert find_entries_end(path, FILE_SIZE, 4_000, 0)[0] == 80_000


@pytest.mark.parametrize(
    "odd", [Entry(-1, 91, 0), Entry(5, 0, 0), Entry(5, -1, 0), Entry(0, 0, 7)]
)
def test_entries_end_at_the_first_that_was_not_written(path, odd):
    data = encode(2) + Entry(0, FILLER_SIZE, 0).encode()
    size = odd.size & 0xFFFFFFFF
    odd_bytes = odd._replace(size=0).encode()
    odd_bytes = odd_bytes[:8] + size.to_bytes(4, "big") + odd_bytes[12:]
    fill(path, data + odd_bytes + encode(1))
    assert find_entries_end(path, FILE_SIZE, 0, 0)[:2] == (60, True)


def test_a_full_file_of_an_odd_size_ends_at_its_last_whole_entry(path):
    fill(path, encode(3), 65)
    assert find_entries_end(path, 65, 0, 0) == (60, False, 0, 200, 100)


def test_entries_are_cleared(path):
    fill(path, encode(3_000))
    clear_entries(path, FILE_SIZE, 60)
    with open(path, "rb") as file:
        assert file.read() == encode(3).ljust(FILE_SIZE, b"\0")


def test_one_entry_is_read(path):
    fill(path, encode(3))
    assert read_entry_at(path, FILE_SIZE, 40) == (200, 100)
    assert read_entry_at(path, FILE_SIZE, 60) == (0, 0)
    assert read_entry_at(path, FILE_SIZE, FILE_SIZE - 20) == (0, 0)


@pytest.mark.parametrize("call", [find_entries_end, read_entry_at, clear_entries])
def test_another_file_is_refused(path, call, tmp_path):
    more = (0, 0) if call is find_entries_end else (0,)
    fill(path, b"", 180)
    with pytest.raises(ValueError, match="has 180 bytes instead of 200"):
        call(path, 200, *more)
    with pytest.raises(FileNotFoundError):
        call(os.fsencode(tmp_path / "none"), 200, *more)
