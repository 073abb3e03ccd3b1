"""Noting the keys of a thousand tagged messages, and giving them their entries."""

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.index_file import IndexFile, index_file_size
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.new_keys import NewKeys
from rmq._fastpath.log.tail import LogTail

COUNT = 1_000
SLOTS, ENTRIES = 5_000, 20_000


@pytest.fixture
def tail(tmp_path):
    tail = LogTail(RecordEncoder(bytes(8)))
    tail.file = MappedFile(str(tmp_path / "log"), 1 << 20, create=True)
    tail.file.allocate(tail.file.size)
    return tail


def append_all(tail):
    tail.file.write_position = 0
    for i in range(COUNT):
        at = tail.encoder.staged_size
        properties = b"UNIQ_KEY\x01%032d\x02TAGS\x01a\x02" % i
        tail.encoder.stage(
            b"t", 0, i, at, 0, 0, 1, bytes(8), 2, 0, 0, bytes(128), properties
        )
    return tail.commit(COUNT)


@pytest.mark.parametrize("is_indexed", [False, True])
def bench_append_1000_records(benchmark, tail, is_indexed):
    def run():
        tail.new_keys = NewKeys() if is_indexed else None
        append_all(tail)

    benchmark(run)


def bench_add_1000_records(benchmark, tail, tmp_path):
    size = index_file_size(SLOTS, ENTRIES)
    file = MappedFile(str(tmp_path / "index"), size, create=True)
    file.allocate(size)

    def prepare():
        tail.new_keys = NewKeys()
        end = append_all(tail)
        return (tail.new_keys, 0, end, end), {}

    def add(*where):
        IndexFile(file, SLOTS, ENTRIES).add_new_keys(*where)

    benchmark.pedantic(add, setup=prepare, rounds=200)
