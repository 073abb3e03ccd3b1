"""What the time of one answer costs to note."""

from rmq._fastpath.reactor.rpc_times import RpcTimes


def bench_observe(benchmark):
    observe = RpcTimes().observe
    benchmark(observe, 10, 0, 2_000_000)
