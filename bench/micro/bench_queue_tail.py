"""An entry published in memory, and the copy that a flush takes."""

from rmq._fastpath.log.queue_tail import QueueTail


def bench_publish(benchmark):
    queue = QueueTail("t", 0)

    def run():
        queue.truncate_to(0, -1)
        for n in range(100):
            queue.publish(n, 100, 0)

    benchmark(run)


def bench_copy_for_a_flush(benchmark):
    queue = QueueTail("t", 0)
    for n in range(400):
        queue.publish(n, 100, 0)
    assert len(benchmark(queue.unflushed_entries, 400)) == 8_000
