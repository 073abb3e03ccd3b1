"""Sends by gRPC that compiled code declines, 16 in a poll."""

from bench.micro.grpc_calls import measure_sends


def bench_call_paths(benchmark, tmp_path):
    calls, served = measure_sends(benchmark, tmp_path, tag="\u4e2d")
    assert calls
    assert served == 0
