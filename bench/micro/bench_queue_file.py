"""A flush of 64 queues, and the look at one when a store starts."""

import os

from rmq._fastpath.log.queue_file import find_entries_end, write_entries
from rmq._fastpath.log.queue_tail import QueueTail

FILE_SIZE = 6_000_000


def entries(count):
    queue = QueueTail("t", 0)
    for n in range(count):
        queue.publish(100 * n, 100, 0)
    return queue.unflushed_entries(1 << 30)


def bench_flush_of_64_queues(benchmark, tmp_path):
    paths = [os.fsencode(tmp_path / str(n) / "0" / "0") for n in range(64)]
    write_entries([(path, 0, b"", True) for path in paths], [], FILE_SIZE)
    data = entries(10)
    benchmark(write_entries, [(p, 0, data, False) for p in paths], [], FILE_SIZE)


def bench_end_of_a_queue(benchmark, tmp_path):
    path = os.fsencode(tmp_path / "0")
    write_entries([(path, 0, entries(150), True)], [], FILE_SIZE)
    assert benchmark(find_entries_end, path, FILE_SIZE, 150, 0)[0] == 3_000
