"""A stored record checked, and taken apart."""

import pytest

from rmq._fastpath.log.decode import check_record, decode_record
from rmq._fastpath.log.encode import RecordEncoder


@pytest.fixture
def record():
    encoder = RecordEncoder(bytes(8))
    encoder.stage(
        b"topic", 0, 1, 2, 0, 0, 3, bytes(8), 4, 0, 0, bytes(128), b"TAGS\x01a\x02"
    )
    return encoder.staged_bytes()


def bench_check(benchmark, record):
    benchmark(check_record, record)


def bench_check_lengths_only(benchmark, record):
    benchmark(check_record, record, check_crc=False)


def bench_decode(benchmark, record):
    benchmark(decode_record, record)
