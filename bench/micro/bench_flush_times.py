"""What the time of one durable write costs to note."""

from rmq._fastpath.log.flush_times import FlushTimes


def bench_observe(benchmark):
    benchmark(FlushTimes().observe, 2_000_000)
