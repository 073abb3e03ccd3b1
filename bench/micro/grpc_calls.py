"""Calls by gRPC for the benchmarks of their modules, 16 in a poll."""

from tests.plugins.grpc.clients import sent
from tests.plugins.grpc.grpc_sides import GrpcSide

IN_POLL = 16


def measure_calls(benchmark, side, method, request):
    """Measure polls; return the number of calls."""
    calls = 0

    def prepare():
        nonlocal calls
        calls += IN_POLL
        frames = [side.frames_of(method, request) for _ in range(IN_POLL)]
        side.collect()
        side.peer.sendall(b"".join(frames))
        return (), {}

    benchmark.pedantic(side.poll, setup=prepare, rounds=50)
    return calls


def measure_sends(benchmark, folder, topic="T", kind=1, **fields):
    """Measure polls; return the number of calls, and of those served compiled."""
    side = GrpcSide(folder, compiled=True)
    side.caller.topic("T", queues=4)
    side.caller.topic("D", queues=4)
    side.broker.topics.get("D").attributes["message.type"] = "DELAY"
    made = sent(topic, bytes(128), kind, "01" + "A" * 32, queue_id=1, **fields)
    for _ in range(2):  # Python serves the first messages of a queue
        side.call(made)
    before = side.sends.served
    calls = measure_calls(benchmark, side, "SendMessage", made)
    served = side.sends.served - before
    side.close()
    return calls, served
