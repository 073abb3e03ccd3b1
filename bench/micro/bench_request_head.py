"""Heads of requests that are no calls."""

import pytest

from bench.micro.http2_calls import Calls
from tests.fastpath.http2 import caller as h2


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


def bench_heads(benchmark, calls):
    def frames():
        streams = calls.next_streams(16)
        return (b"".join(h2.headers(i, path=b"/") for i in streams),), {}

    assert benchmark.pedantic(calls.send, setup=frames, rounds=100) == 0
