"""Heads of requests that are no calls."""

from tests.fastpath.http2 import caller as h2


def bench_heads(benchmark, calls):
    def frames():
        streams = calls.next_streams(16)
        return (b"".join(h2.headers(i, path=b"/") for i in streams),), {}

    assert benchmark.pedantic(calls.send, setup=frames, rounds=100) == 0
