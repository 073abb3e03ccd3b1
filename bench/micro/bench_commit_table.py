"""A pair of group and topic that is shown again, among many others."""

from rmq._fastpath.handlers.commit_table import CommitTable


def bench_show_among_10000(benchmark):
    table = CommitTable(print)
    for n in range(10_000):
        table.register(f"group-{n}", "TopicTest", 3)
    benchmark(table.register, "group-7", "TopicTest", 4)
    assert len(table) == 10_000
