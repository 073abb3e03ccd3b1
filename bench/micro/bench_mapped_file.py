"""Copies into and out of the mapping, beside the system calls."""

import pytest

from rmq._fastpath.log.mapped_file import MappedFile


@pytest.fixture
def file(tmp_path):
    mapped = MappedFile(str(tmp_path / "0"), 1 << 20, create=True)
    mapped.allocate(mapped.size)
    mapped.write(0, bytes(mapped.size))
    return mapped


@pytest.mark.parametrize("size", [300, 65_536])
@pytest.mark.parametrize("way", ["write", "pwrite"])
def bench_write(benchmark, file, way, size):
    benchmark(getattr(file, way), 4_096, bytes(size))


@pytest.mark.parametrize("way", ["read", "view"])
def bench_read_32_kib(benchmark, file, way):
    benchmark(getattr(file, way), 4_096, 32_768)


def bench_is_resident_32_kib(benchmark, file):
    benchmark(file.is_resident, 4_096, 32_768)


def bench_flush_4_kib(benchmark, file):
    def run():
        file.write(8_192, bytes(4_096))
        file.flush()

    benchmark(run)
