"""A checkpoint of 32 messages: what its parts cost."""

from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue

OFFSETS = tuple(range(32))


def bench_32_messages(benchmark):
    queue = PopQueue("TopicTest", "please_rename_unique_group_name", 3, 0)

    def run():
        checkpoint = Checkpoint(queue, 0, 5, 60_000, 0, OFFSETS, 0)
        for offset in OFFSETS:
            checkpoint.clear(offset)
        return checkpoint

    assert benchmark(run).is_acked
