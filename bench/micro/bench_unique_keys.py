"""Making a unique key for a message that came without one."""

import time

from rmq._fastpath.bytes.unique_keys import UniqueKeys


def bench_next(benchmark):
    keys = UniqueKeys(bytes(8), lambda: time.time_ns() // 1_000_000)
    benchmark(keys.next)
