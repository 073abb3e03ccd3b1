"""Sixteen thousand records of 262 bytes turned into columns, and only walked."""

import ctypes

import pytest

from rmq._fastpath.arrow.columns import COLUMNS, ColumnReader, find_record, walk_chain
from rmq._fastpath.log.encode import RecordEncoder

COUNT = 16_384
SLIM = ["topic", "queueId", "queueOffset", "body", "tags", "keys", "storeTimestamp"]
TEXT = [name for name in COLUMNS if name not in ("properties", "offsetMsgId")]
CASES = {
    "fixed": ["queueId", "queueOffset", "storeTimestamp"],
    "slim": SLIM,
    "text": TEXT,
    "map": [*(n for n in TEXT if n != "propertiesText"), "properties"],
}


@pytest.fixture(scope="module")
def log():
    encoder = RecordEncoder(bytes((10, 0, 0, 2, 0, 0, 42, 159)))
    host = bytes((10, 0, 0, 1, 0, 0, 195, 80))
    for i in range(COUNT):
        properties = f"KEYS\1k{i}\2UNIQ_KEY\1{i:032X}\2TAGS\1T{i % 5}\2WAIT\1true\2"
        encoder.stage(
            b"orders_%02d" % (i % 4), i % 4, i, encoder.staged_size, 0, 0, i, host, i,
            0, 0, b"x" * (70 + i % 40), properties.encode(),
        )  # fmt: skip
    return encoder.staged_bytes()


@pytest.mark.parametrize("case", CASES)
def bench_columns(benchmark, log, case):
    reader = ColumnReader(CASES[case])
    measured = reader.measure(log, 0, len(log), max_rows=COUNT)
    buffers = [
        [ctypes.create_string_buffer(size) for size in sizes]
        for sizes in measured.sizes
    ]
    addresses = [tuple(ctypes.addressof(b) for b in column) for column in buffers]

    def read():
        reader.measure(log, 0, len(log), base_offset=0, max_rows=COUNT)
        reader.fill(addresses)

    benchmark(read)
    if benchmark.enabled:
        benchmark.extra_info["M rows/s"] = COUNT / benchmark.stats["median"] / 1e6


def bench_walk(benchmark, log):
    benchmark(walk_chain, log, 0, len(log), base_offset=0)


def bench_find(benchmark, log):
    benchmark(find_record, log, len(log) // 2, len(log), base_offset=0)
