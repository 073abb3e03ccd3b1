"""Paths of known and unknown methods."""

import pytest

from tests.fastpath.http2 import caller as h2


@pytest.mark.parametrize("method", [b"SendMessage", b"QueryOffset", b"Unknown"])
def bench_paths(benchmark, calls, method):
    def frames():
        streams = calls.next_streams(16)
        return (b"".join(h2.call(i, method=method) for i in streams),), {}

    served = benchmark.pedantic(calls.send, setup=frames, rounds=100)
    assert served == (0 if method == b"Unknown" else 16)
