"""Indexing a thousand tagged messages, and reading as many to find a key."""

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.index_file import IndexFile, find_in_log, index_file_size
from rmq._fastpath.log.mapped_file import MappedFile

COUNT = 1_000
SLOTS, ENTRIES = 5_000, 20_000


@pytest.fixture
def log(tmp_path):
    file = MappedFile(str(tmp_path / "log"), 1 << 20, create=True)
    file.allocate(file.size)
    encoder = RecordEncoder(bytes(8))
    for i in range(COUNT):
        at = encoder.staged_size
        properties = b"UNIQ_KEY\x01%032d\x02TAGS\x01a\x02" % i
        encoder.stage(
            b"t", 0, i, at, 0, 0, 1, bytes(8), 2, 0, 0, bytes(128), properties
        )
    encoder.commit(file, use_pwrite=True)
    return file


def bench_add_1000_records(benchmark, log, tmp_path):
    size = index_file_size(SLOTS, ENTRIES)
    file = MappedFile(str(tmp_path / "index"), size, create=True)
    file.allocate(size)
    end = log.write_position

    def add():
        IndexFile(file, SLOTS, ENTRIES).add_records(log, 0, end, end)

    benchmark(add)


def bench_find_in_1000_records(benchmark, log):
    benchmark(
        find_in_log,
        log,
        0,
        log.write_position,
        b"t",
        b"%032d" % 7,
        is_tags=False,
        begin_ms=0,
        end_ms=9,
        limit=32,
    )
