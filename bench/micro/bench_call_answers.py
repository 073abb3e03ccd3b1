"""Sends by gRPC whose answers have a recall handle, 16 in a poll."""

from bench.micro.grpc_calls import measure_sends
from rmq.testing import ManualClock

DUE_MS = ManualClock().now_ms() + 3_600_000
"""An hour after the start of the clock of tests."""


def bench_call_answers(benchmark, tmp_path):
    calls, served = measure_sends(benchmark, tmp_path, "D", 3, delivery_ms=DUE_MS)
    assert calls == served
