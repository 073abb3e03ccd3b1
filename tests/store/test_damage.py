"""Where damage begins and ends, and what is whole around it."""

import pytest

from rmq.store.damage import Damage, LogFiles
from rmq.store.patch import LogPatch
from tests.store.test_recovery import crash, damage, fill

SIZE = 65536


@pytest.fixture
def log(open_store, make_message):
    """A log of two files and a bit: its files, and the results of its puts."""
    store = open_store()
    _, results = fill(store, make_message, 150)
    crash(store)
    files = LogFiles(store.directory.log_folders, SIZE)
    assert len(files.find_bases()) == 3
    return store, files, results


def places(results, number):
    return results[number].physical_offset


def test_a_whole_log_has_no_damage(log):
    _, files, results = log
    end = results[-1].end_offset
    assert files.walk(0, end) == (end, "")
    assert files.find(0, end, 0) is None
    assert files.missing(0, end) is None


@pytest.mark.parametrize("number", [0, 1, 30, 66, 67, 149])
def test_damage_begins_and_ends_at_records(log, number):
    store, files, results = log
    end = results[-1].end_offset
    damage(store, places(results, number) + 300, b"\xff\xfe")
    following = places(results, number + 1) if number < 149 else end
    found = files.find(0, end, 7)
    assert found == Damage(places(results, number), following, end, "bad crc", 7)
    assert found.is_short == (number == 149)


def test_a_record_inside_a_body_does_not_count_if_it_is_damaged(log):
    store, files, results = log
    end = results[-1].end_offset
    begin, inside = places(results, 30), places(results, 30) + 200
    copy = bytearray(files.record_at(begin)[1])
    copy[28:36] = inside.to_bytes(8, "big")
    damage(store, inside, bytes(copy[:400]))
    assert files.next_whole(begin, end) == places(results, 31)


@pytest.mark.parametrize(
    ("gone", "begin", "end"),
    [([0], 0, SIZE), ([1], SIZE, 2 * SIZE), ([0, 1], 0, 2 * SIZE)],
)
def test_missing_files(log, gone, begin, end):
    _, files, results = log
    for number in gone:
        files.path_of(number * SIZE).unlink()
    assert files.missing(0, results[-1].end_offset) == (begin, end)


def test_a_file_that_was_made_ahead_hides_nothing(log):
    _, files, results = log
    end = results[-1].end_offset
    files.path_of(3 * SIZE).write_bytes(bytes(SIZE))
    assert files.missing(0, end) is None
    files.path_of(2 * SIZE).unlink()
    assert files.missing(0, end) == (2 * SIZE, end)


def test_files_before_the_start_are_not_missing(log):
    _, files, results = log
    files.path_of(0).unlink()
    assert files.missing(SIZE, results[-1].end_offset) is None


def test_the_last_file_is_found_missing_by_the_walk(log):
    _, files, results = log
    files.path_of(2 * SIZE).unlink()
    assert files.missing(0, results[-1].end_offset) is None
    assert files.walk(0, results[-1].end_offset)[1] == "no file"


def test_a_short_file_counts_as_missing(log):
    _, files, results = log
    end = results[-1].end_offset
    path = files.path_of(2 * SIZE)
    path.write_bytes(path.read_bytes()[:100])
    assert files.missing(0, end) == (2 * SIZE, end)


def test_records_around_an_offset(log):
    _, files, results = log
    for number in (1, 67, 140):
        begin = places(results, number)
        assert files.record_before(begin)[0] == places(results, number - 1)
        offset, data = files.record_at(begin)
        assert (offset, len(data)) == (begin, results[number].end_offset - begin)
    assert files.record_before(0) is None
    assert files.record_at(places(results, 1) + 1) is None


def test_the_whole_part_ends_before_the_damage(log):
    _, files, results = log
    for number in (0, 1, 100):
        with files.whole_part(places(results, number)) as part:
            assert part.end_offset == places(results, number)
            assert part.min_offset == 0


def test_a_patch_writes_across_files_and_keeps_what_was_there(log, tmp_path):
    _, files, results = log
    end = results[-1].end_offset
    first = files.path_of(0).read_bytes()
    second = files.path_of(SIZE).read_bytes()
    files.path_of(SIZE).unlink()
    patch = LogPatch(files, tmp_path / "copies")
    begin = places(results, 50)
    patch.keep(begin, SIZE + 100)
    patch.write(begin, memoryview(first[begin:] + second[:100]))
    patch.write(SIZE + 100, memoryview(second[100:]))
    patch.sync()
    assert files.find(0, end, 0) is None
    [kept] = (tmp_path / "copies").iterdir()
    assert kept.read_bytes() == first[begin:]
    assert int(kept.name) == begin
