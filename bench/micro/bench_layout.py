"""Constants have no cost in C; this is what Python pays to read one."""

from rmq._fastpath.log.layout import RecordLayout


def bench_constant(benchmark):
    benchmark(lambda: RecordLayout.BORN_HOST_AT)
