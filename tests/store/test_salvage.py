"""Whole records after damage are found, and nothing else."""

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq.store.salvage import (
    count_records,
    data_end,
    has_data,
    next_record,
    records_in,
)

COUNT = 20


@pytest.fixture
def log(tmp_path):
    """A file that starts at 4096 of its log, and where its records stand."""
    file = MappedFile(str(tmp_path / "log"), 1 << 16, base_offset=4096, create=True)
    file.allocate(file.size)
    encoder = RecordEncoder(bytes(8))
    starts = []
    for n in range(COUNT):
        at = encoder.staged_size
        starts.append(at)
        body = b"%d" % n + b"\xda\xa3\x20\xa7" * 3
        encoder.stage(
            b"t", 0, n, 4096 + at, 0, 0, 1, bytes(8), 2, 0, 0, body, b"K\x01v\x02"
        )
    starts.append(encoder.staged_size)
    encoder.commit(file, use_pwrite=False)
    yield file, starts
    file.close()


def test_the_next_record_is_found_from_anywhere(log):
    file, starts = log
    for before, start in zip([-1, *starts], starts[:-1], strict=False):
        for position in range(before + 1, start + 1):
            assert next_record(file, position) == start
    assert next_record(file, starts[-2] + 1) is None
    assert next_record(file, 0, starts[1] - 1) is None


def test_a_search_in_parts_finds_each_record_in_one_part(log):
    file, starts = log
    for start in starts[1:-1]:
        assert next_record(file, start - 1, start_limit=start) is None
        assert next_record(file, start - 1, start_limit=start + 1) == start
        assert next_record(file, start, start_limit=start + 1) == start


def test_a_copy_of_a_record_is_none(log):
    """Its own offset says where it should stand."""
    file, starts = log
    copy = file.read(starts[3], starts[4] - starts[3])
    file.write(30_000, copy)
    assert next_record(file, starts[-1]) is None


def test_a_record_across_two_parts(log, monkeypatch):
    file, starts = log
    for size in range(9, 60):
        monkeypatch.setattr("rmq.store.salvage._PART_SIZE", size)
        assert next_record(file, starts[5] + 1) == starts[6]


@pytest.mark.parametrize("at", [0, 4, 28, 84, 90])
def test_damage_costs_one_record(log, at):
    file, starts = log
    file.write(starts[7] + at, b"\x77")
    assert count_records(file, 0, file.size) == COUNT - 1
    bodies = [int(record.body.split(b"\xda")[0]) for record in records_in(file)]
    assert bodies == [n for n in range(COUNT) if n != 7]


def test_where_the_data_ends(log):
    file, starts = log
    assert data_end(file, 0) == starts[-1]
    assert data_end(file, starts[-1]) == starts[-1]
    assert has_data(file, starts[-1] - 1)
    assert not has_data(file, starts[-1])
