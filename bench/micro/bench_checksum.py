"""Own CRC, with and without carry-less multiplication, beside zlib."""

import zlib

import pytest

from rmq._fastpath.bytes.checksum import crc32

METHODS = {
    "clmul": crc32,
    "tables": lambda data: crc32(data, tables_only=True),
    "zlib": zlib.crc32,
}


@pytest.mark.parametrize("size", [128, 1024, 65_536])
@pytest.mark.parametrize("method", METHODS)
def bench_crc(benchmark, method, size):
    benchmark(METHODS[method], bytes(size))
