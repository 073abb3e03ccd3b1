"""64 new invisible times, of two checkpoints, through the compiled handler."""

import socket

from bench.micro.bench_ack_path import GROUP, NOW_MS, OFFSETS, TOPIC
from bench.micro.bench_checkpoint_table import new_table
from bench.micro.bench_pop_table import new_pops
from rmq._fastpath.handlers.checkpoint import Checkpoint, PopQueue
from rmq._fastpath.handlers.invisible_time_path import InvisibleTimePath
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

CHANGE = 200_053


def bench_64_times(benchmark):
    table = new_table()
    reactor = Reactor()
    path = InvisibleTimePath(new_pops(table), "broker-a", 513)
    reactor.natives.register(0, CHANGE, path)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    queues = [PopQueue(TOPIC, GROUP, queue_id, 0) for queue_id in range(2)]
    frames = b"".join(
        encode(
            Command(
                CHANGE,
                {
                    "consumerGroup": GROUP, "topic": TOPIC, "queueId": str(queue_id),
                    "offset": str(offset), "invisibleTime": "30000",
                    "extraInfo": f"1000 {NOW_MS} 9000 3 0 broker-a {queue_id} {offset}",
                },
            )
        )
        for queue_id in range(2)
        for offset in OFFSETS
    )  # fmt: skip
    taken = bytearray(1 << 17)

    def run():
        for queue in queues:
            table.add(Checkpoint(queue, 1_000, NOW_MS, 9_000, 3, OFFSETS, 0))
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)
        assert table.count == 64
        for checkpoint in table.all():
            table.end(checkpoint)
        for queue in queues:
            queue.drop_ended(0)

    benchmark(run)
    assert not reactor.has_events
    theirs.close()
