"""A view that changes: forgotten and shown again, among many others."""

from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.pull_table import PullTable, PullView
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.tail import LogTail


def view(n):
    return PullView(
        f"group-{n}",
        "TopicTest",
        None,
        sub_version=1,
        tag_codes=None,
        flags={"topicSysFlag": "0", "groupSysFlag": "0"},
    )


def bench_remove_and_add_among_10000(benchmark):
    table = PullTable(
        LogTail(RecordEncoder(bytes(8))),
        LogReader([]),
        None,
        hot_window=1 << 30,
        hot_limits=(32, 1 << 18),
        cold_limits=(8, 1 << 16),
        scan_bytes=16_000,
        version=513,
        on_work=print,
        commits=CommitTable(print),
    )
    views = [view(n) for n in range(10_000)]
    for each in views:
        table.add(each)

    def run():
        table.remove(views[7])
        table.add(views[7])

    benchmark(run)
    assert len(table) == len(views)
