"""Acks by gRPC that repeat one ack, 16 in a poll."""

from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import GrpcSide
from tests.plugins.grpc.test_compiled_grpc_acks import ack_of, receive

IN_POLL = 16


def bench_acks(benchmark, tmp_path):
    side = GrpcSide(tmp_path, compiled=True)
    side.caller.topic("T", queues=1)
    for number in range(10):
        side.call(sent("T", message_id=f"01{number:030X}"))
    handle, acks, calls = receive(side)[0], side.grpc.service.compiled, 0

    def prepare():
        nonlocal calls
        calls += IN_POLL
        frames = [side.frames_of("AckMessage", ack_of(handle)) for _ in range(IN_POLL)]
        side.collect()
        side.peer.sendall(b"".join(frames))
        return (), {}

    benchmark.pedantic(side.poll, setup=prepare, rounds=50)
    assert acks["AckMessage"].served == calls
    side.close()
