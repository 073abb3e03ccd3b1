"""Sends by gRPC with 100 properties, 16 in a poll."""

from bench.micro.grpc_calls import measure_sends


def bench_sent_message(benchmark, tmp_path):
    calls, served = measure_sends(
        benchmark, tmp_path, properties={f"name-{i}": "value" for i in range(100)}
    )
    assert calls == served
