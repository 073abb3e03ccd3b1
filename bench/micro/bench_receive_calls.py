"""Receives by gRPC of 32 messages each, and receives that find nothing."""

from rmq_plugins.grpc import schema
from tests.plugins.grpc.grpc_sides import GrpcSide, ack_of
from tests.plugins.grpc.test_compiled_grpc_receives import receive, send

ROUNDS = 50
BATCH = 32


def bench_receives(benchmark, tmp_path):
    side = GrpcSide(tmp_path, compiled=True)
    side.caller.topic("T", queues=1)
    send(side, 0, 1)
    receive(side)
    receives = side.grpc.service.compiled["ReceiveMessage"]
    request = schema.ReceiveMessageRequest(batch_size=BATCH)
    request.group.name, request.message_queue.topic.name = "G", "T"
    request.invisible_duration.seconds = 30

    def prepare():
        for message in side.messages():
            handle = message.system_properties.receipt_handle
            side.call(ack_of(handle), "AckMessage")
        send(side, 1, BATCH, bytes(128))
        side.collect()
        side.peer.sendall(side.frames_of("ReceiveMessage", request))
        return (), {}

    benchmark.pedantic(side.poll, setup=prepare, rounds=ROUNDS)
    assert receives.served
    side.close()
