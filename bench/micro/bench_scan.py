"""A pull's scan of 32 entries, and recovery's walk over a thousand records."""

import pytest

from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.scan import scan_queue, survey_log, walk_log

LIMITS = {
    "max_messages": 1_000,
    "max_bytes": 1 << 30,
    "max_examined": 10_000,
    "confirm_offset": 1 << 40,
}


@pytest.fixture
def entries():
    tail = QueueTail("t", 0)
    for i in range(1_000):
        tail.publish(300 * i, 300, i % 4)
    return tail.unflushed_entries(1 << 30)


@pytest.fixture
def log(tmp_path):
    file = MappedFile(str(tmp_path / "log"), 1 << 20, create=True)
    file.allocate(file.size)
    encoder = RecordEncoder(bytes(8))
    for i in range(1_000):
        at = encoder.staged_size
        encoder.stage(
            b"t", 0, i, at, 0, 0, 1, bytes(8), 2, 0, 0, bytes(128), b"TAGS\x01a\x02"
        )
    encoder.commit(file, use_pwrite=True)
    return file


@pytest.mark.parametrize("tag_codes", [None, (1,), (9,)])
@pytest.mark.parametrize("count", [32, 1_000])
def bench_scan(benchmark, entries, count, tag_codes):
    benchmark(scan_queue, entries[: 20 * count], tag_codes=tag_codes, **LIMITS)


@pytest.mark.parametrize("check_crc", [False, True])
def bench_walk_1000_records(benchmark, log, check_crc):
    benchmark(walk_log, log, 0, log.write_position, check_crc=check_crc)


@pytest.mark.parametrize("check_crc", [False, True])
def bench_survey_1000_records(benchmark, log, check_crc):
    rows = memoryview(bytearray(8 * 8 * 1_000)).cast("q", (1_000, 8))
    end = log.write_position
    benchmark(survey_log, log, 0, end, rows, check_crc=check_crc)
