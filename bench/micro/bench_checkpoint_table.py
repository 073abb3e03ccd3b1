"""A checkpoint that comes and goes among many others."""

from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue
from rmq._fastpath.handlers.checkpoint_table import CheckpointTable
from rmq._fastpath.log.queue_tail import TailSet

OFFSETS = tuple(range(1_000, 1_032))
GROUP, TOPIC = "please_rename_unique_group_name", "TopicTest"


def new_table():
    """Return a table that reports nothing."""
    table = CheckpointTable(
        TailSet(),
        on_acks=lambda acks: None,
        on_touched=lambda queues: None,
        on_wake=lambda at_ms: None,
        clock_ms=int,
        steady_ms=int,
    )
    table.is_buffered = True
    return table


def bench_add_and_end_among_10000(benchmark):
    table = new_table()
    queue = PopQueue(TOPIC, GROUP, 3, 0)
    for start in range(10_000):
        table.add(Checkpoint(queue, start, 5, 60_000, 0, OFFSETS, 0))

    def run():
        checkpoint = Checkpoint(queue, 1_000_000, 5, 60_000, 0, OFFSETS, 0)
        table.add(checkpoint)
        table.end(checkpoint)
        queue.drop_ended(0)

    benchmark(run)
    assert table.count == 10_000
