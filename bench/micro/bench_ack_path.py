"""64 acks of two checkpoints through the reactor and the compiled handler."""

import socket

from bench.micro.bench_checkpoint_table import new_table
from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

ACK = 200_051
OFFSETS = tuple(range(1_000, 1_032))
GROUP, TOPIC = "please_rename_unique_group_name", "TopicTest"
NOW_MS = 1_795_228_647_162


def bench_64_acks(benchmark):
    table = new_table()
    reactor = Reactor()
    reactor.natives.register(0, ACK, AckPath(table, "broker-a", 513))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    queues = [PopQueue(TOPIC, GROUP, queue_id, 0) for queue_id in range(2)]
    frames = b"".join(
        encode(
            Command(
                ACK,
                {
                    "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id),
                    "offset": str(offset),
                    "extraInfo": f"1000 {NOW_MS} 9000 3 0 broker-a {queue_id} {offset}",
                },
            )
        )
        for queue_id in range(2)
        for offset in OFFSETS
    )  # fmt: skip
    taken = bytearray(1 << 16)

    def run():
        for queue in queues:
            table.add(Checkpoint(queue, 1_000, NOW_MS, 9_000, 3, OFFSETS, 0))
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)
        for queue in queues:
            queue.drop_ended(0)

    benchmark(run)
    assert not reactor.has_events
    assert table.count == 0
    theirs.close()
