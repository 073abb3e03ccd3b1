"""Frames without a call."""

import pytest

from bench.micro.http2_calls import Calls
from tests.fastpath.http2 import caller as h2


@pytest.fixture
def calls():
    calls = Calls()
    yield calls
    calls.close()


def bench_pings(benchmark, calls):
    pings = h2.frame(h2.PING, 0, 0, bytes(8)) * 64
    assert benchmark(calls.send, pings) == 0
