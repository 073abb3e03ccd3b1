"""Streams that open and close while many others are open."""

from tests.fastpath.http2 import caller as h2


def bench_streams(benchmark, calls):
    for i in calls.next_streams(900):
        calls.send(h2.headers(i, ends=False))

    def frames():
        return (b"".join(h2.call(i) for i in calls.next_streams(16)),), {}

    assert benchmark.pedantic(calls.send, setup=frames, rounds=100) == 16
