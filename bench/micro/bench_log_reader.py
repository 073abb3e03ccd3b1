"""Reading a record from the ring, and a part of it for another thread."""

import pytest

from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing

SIZE = 1 << 20


@pytest.fixture
def reader(tmp_path):
    file = MappedFile(str(tmp_path / f"{0:020d}"), SIZE, create=True)
    file.allocate(SIZE)
    file.write_position = SIZE // 2
    reader = LogReader([file])
    reader.ring = TailRing(str(tmp_path / "ring"), 1, size=SIZE)
    for _ in range(SIZE // 2 // 65_536):
        reader.ring.add(b"x" * 65_536)
    yield reader
    file.close()


def bench_read_of_a_record(benchmark, reader):
    benchmark(reader.read, 4_096, 330)


def bench_copy_of_256_kib(benchmark, reader):
    benchmark(reader.read_extent, 4_096, 1 << 18, is_shared=True)
