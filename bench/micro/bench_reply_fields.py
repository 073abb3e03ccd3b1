"""Fields that every reply carries, written once for each view of a topic."""

from rmq._fastpath.handlers.reply_fields import ReplyFields


def bench_write(benchmark):
    benchmark(ReplyFields, {"topicSysFlag": "0", "groupSysFlag": "0"})
