"""Calls that Python serves, 16 in a poll."""

from tests.fastpath.http2 import caller as h2


def bench_calls(benchmark, calls):
    def frames():
        return (b"".join(h2.call(i, b"x" * 128) for i in calls.next_streams(16)),), {}

    assert benchmark.pedantic(calls.send, setup=frames, rounds=200) == 16
