"""Frames without a call."""

from tests.fastpath.http2 import caller as h2


def bench_pings(benchmark, calls):
    pings = h2.frame(h2.PING, 0, 0, bytes(8)) * 64
    assert benchmark(calls.send, pings) == 0
