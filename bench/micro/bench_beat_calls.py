"""Heartbeats by gRPC that repeat one heartbeat, 16 in a poll."""

from bench.micro.grpc_calls import measure_calls
from rmq_plugins.grpc import schema
from tests.plugins.grpc.grpc_sides import GrpcSide


def bench_heartbeats(benchmark, tmp_path):
    side = GrpcSide(tmp_path, compiled=True)
    request = schema.HeartbeatRequest(client_type=3)
    request.group.name = "G"
    side.call(request, "Heartbeat")
    calls = measure_calls(benchmark, side, "Heartbeat", request)
    assert side.grpc.service.compiled["Heartbeat"].served == calls
    side.close()
