"""A wait that brings nothing: what a turn of trio pays for the hook."""

import os

from rmq._fastpath.reactor.inner_loop import InnerLoop
from rmq._fastpath.reactor.reactor import Reactor


def bench_nothing_ready(benchmark):
    readable, writable = os.pipe()
    inner = InnerLoop(Reactor(), readable, 0, int, float)
    benchmark(inner.before_io_wait, 0)
    os.close(readable)
    os.close(writable)
    assert inner.waits > 0
