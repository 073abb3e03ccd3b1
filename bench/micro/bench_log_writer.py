"""From the ring to a file: a batch, durable or not, past the page cache."""

import pytest

from rmq._fastpath.log.flush_times import FlushTimes
from rmq._fastpath.log.log_writer import LogWriter
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.tail_ring import TailRing
from rmq._fastpath.log.watermark import Watermark

FILE_SIZE = 64 << 20
BATCH = b"x" * 86_000


@pytest.mark.parametrize("is_durable", [False, True])
def bench_write_of_256_records(benchmark, tmp_path, is_durable):
    files = {}
    ring = TailRing(str(tmp_path / "ring"), 1, size=1 << 20)

    def find(offset):
        base = offset - offset % FILE_SIZE
        if base not in files:
            path = str(tmp_path / f"{base:020d}")
            files[base] = MappedFile(path, FILE_SIZE, base_offset=base, create=True)
            files[base].allocate(FILE_SIZE)
        return files[base]

    writer = LogWriter(
        ring,
        Watermark(),
        FlushTimes(),
        find,
        lambda: None,
        is_durable=is_durable,
        is_direct=True,
        interval_ms=1,
    )

    def write():
        ring.add(BATCH)
        writer.write_out()

    benchmark(write)
    writer.close_file()
