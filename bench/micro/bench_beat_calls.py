"""Heartbeats by gRPC that repeat one heartbeat, 16 in a poll."""

from rmq_plugins.grpc import schema
from tests.plugins.grpc.grpc_sides import GrpcSide

IN_POLL = 16


def bench_heartbeats(benchmark, tmp_path):
    side = GrpcSide(tmp_path, compiled=True)
    request, calls = schema.HeartbeatRequest(client_type=3), 0
    request.group.name = "G"
    side.call(request, "Heartbeat")

    def prepare():
        nonlocal calls
        calls += IN_POLL
        frames = [side.frames_of("Heartbeat", request) for _ in range(IN_POLL)]
        side.collect()
        side.peer.sendall(b"".join(frames))
        return (), {}

    benchmark.pedantic(side.poll, setup=prepare, rounds=50)
    assert side.grpc.service.compiled["Heartbeat"].served == calls
    side.close()
