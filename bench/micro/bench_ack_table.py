"""A checkpoint that comes and goes among many others."""

from rmq._fastpath.handlers.ack_table import AckMarks, AckTable
from rmq._fastpath.log.queue_tail import TailSet

OFFSETS = tuple(range(1_000, 1_032))
GROUP, TOPIC = "please_rename_unique_group_name", "TopicTest"


def bench_add_and_remove_among_10000(benchmark):
    table = AckTable(TailSet(), print)
    for start in range(10_000):
        table.add((TOPIC, GROUP, 3, start, 5), AckMarks(OFFSETS, 2**32 - 1))

    def run():
        marks = AckMarks(OFFSETS, 2**32 - 1)
        table.add((TOPIC, GROUP, 3, 1_000_000, 5), marks)
        table.remove(marks)

    benchmark(run)
    assert len(table) == 10_000
