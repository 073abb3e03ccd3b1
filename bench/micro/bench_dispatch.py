"""Queue entries for a thousand records, as a start after a kill makes them."""

import pytest

from rmq._fastpath.log.dispatch import QueueDispatcher
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.mapped_file import MappedFile
from rmq._fastpath.log.queue_tail import QueueTail


@pytest.mark.parametrize("size", [128, 1024])
def bench_dispatch_1000_records(benchmark, tmp_path, size):
    log = MappedFile(str(tmp_path / "log"), 1 << 21, create=True)
    log.allocate(log.size)
    encoder, queue = RecordEncoder(bytes(8)), QueueTail("t", 0)
    for n in range(1_000):
        parts = (0, 0, 1, bytes(8), 2, 0, 0, bytes(size), b"TAGS\x01a\x02")
        encoder.stage(b"t", 0, n, encoder.staged_size, *parts)
    encoder.commit(log, use_pwrite=True)
    dispatcher = QueueDispatcher()
    dispatcher.add(queue)

    def run():
        queue.truncate_to(0, -1)
        return dispatcher.run(log, 0, log.size)

    assert benchmark(run).entries == 1_000
