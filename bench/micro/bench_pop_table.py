"""A view that comes and goes among many others."""

from bench.micro.bench_checkpoint_table import new_table
from bench.micro.bench_pop_path import GROUP, TOPIC
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.handlers.pop_table import PopTable, PopTopic, PopView
from rmq._fastpath.handlers.pull_table import PullTable
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.log_reader import LogReader
from rmq._fastpath.log.queue_tail import TailSet
from rmq._fastpath.log.tail import LogTail


def view(tails, expression):
    own = PopTopic(
        GROUP, TOPIC, queue_count=8, tag_codes=None, committed={}, tails=tails
    )
    return PopView((GROUP, TOPIC, "TAG", expression), own, ())


def new_pops(checkpoints):
    """Return a table of POPs with an empty log."""
    pulls = PullTable(
        LogTail(RecordEncoder(bytes(8))), LogReader([]), None, hot_window=1,
        hot_limits=(32, 1 << 18), cold_limits=(8, 1 << 16), scan_bytes=16_000,
        version=513, on_work=print, commits=CommitTable(print),
    )  # fmt: skip
    return PopTable(
        pulls, checkpoints, draw=float, on_remaining=print,
        on_work=print, broker_name="b", revive_queues=8, invisible_limit_ms=1 << 40,
        version=513,
    )  # fmt: skip


def bench_add_and_remove_among_1000(benchmark):
    tails = TailSet()
    table = new_pops(new_table())
    for number in range(1_000):
        table.add(view(tails, str(number)))

    def run():
        new = view(tails, "*")
        table.add(new)
        table.remove(new)

    benchmark(run)
    assert len(table) == 1_000
