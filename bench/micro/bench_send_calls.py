"""Plain sends by gRPC, 16 in a poll."""

from bench.micro.grpc_calls import measure_sends


def bench_send_calls(benchmark, tmp_path):
    calls, served = measure_sends(benchmark, tmp_path)
    assert calls == served
