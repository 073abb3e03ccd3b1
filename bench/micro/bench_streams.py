"""Streams that open and close, beside many open ones."""

import pytest

from bench.micro.http2_calls import Calls
from tests.fastpath.http2 import caller as h2


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


def bench_streams(benchmark, calls):
    for i in calls.next_streams(900):
        calls.send(h2.headers(i, ends=False))

    def frames():
        return (b"".join(h2.call(i) for i in calls.next_streams(16)),), {}

    assert benchmark.pedantic(calls.send, setup=frames, rounds=100) == 16
