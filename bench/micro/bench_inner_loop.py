"""A wait that brings nothing: what a turn of trio pays for the hook."""

import os

from rmq._fastpath import InnerLoop, Reactor


def bench_nothing_ready(benchmark):
    readable, writable = os.pipe()
    inner = InnerLoop(Reactor(), readable, 0)
    benchmark(inner.before_io_wait, 0)
    os.close(readable)
    os.close(writable)
    assert inner.waits > 0
