"""Entries of a queue as an array, across files, gaps and empty ends."""

import pytest

from rmq.protocol.message import Message
from rmq.tools.queue_view import view_queue


@pytest.fixture
def folder(open_store):
    store = open_store(queue_file_size=200)
    for n in range(35):
        store.writes.put(Message("T", 0, b"%d" % n, 0, 0, 1, bytes(8)))
    entries = [store.queues.get("T", 0).entry_at(n) for n in range(35)]
    store.close()
    return store.directory.consume_queue / "T" / "0", entries


def test_all_entries(folder):
    path, entries = folder
    view = view_queue(path)
    assert (view.first, view.end) == (0, 35)
    assert [tuple(map(int, entry)) for entry in view.entries] == entries
    assert view.file_position(12) == (path / f"{200:020d}", 40)
    assert view.real_entries().all()
    assert len(list(path.iterdir())) == 4  # so the entries are a copy of four files


def test_a_queue_whose_first_files_were_cleaned(folder):
    path, entries = folder
    (path / f"{0:020d}").unlink()
    view = view_queue(path)
    assert (view.first, view.end) == (10, 35)
    assert tuple(map(int, view.entries[0])) == entries[10]
    assert not view.problems


def test_a_gap_is_zeros(folder):
    path, entries = folder
    (path / f"{200:020d}").unlink()
    view = view_queue(path)
    assert (view.first, view.end) == (0, 35)
    assert not view.entries["size"][10:20].any()
    assert tuple(map(int, view.entries[20])) == entries[20]
    assert [problem[0].name for problem in view.problems] == [f"{200:020d}"]


def test_a_file_of_another_size_ends_the_view(folder):
    path, _ = folder
    with (path / f"{400:020d}").open("ab") as file:
        file.write(b"x")
    view = view_queue(path)
    assert view.end == 20
    assert "size" in view.problems[0][2]


def test_no_files(tmp_path):
    assert view_queue(tmp_path).end == 0


def test_an_entry_that_ends_in_zeros_is_whole(folder):
    """Tags code 0, as that of a message without tags, is no hole."""
    path, entries = folder
    assert entries[-1][2] == 0
    assert tuple(map(int, view_queue(path).entries[-1])) == entries[-1]
