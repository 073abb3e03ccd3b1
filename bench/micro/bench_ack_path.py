"""64 acks of two checkpoints through the reactor and the compiled handler."""

import socket

from rmq._fastpath.handlers.ack_path import AckPath
from rmq._fastpath.handlers.ack_table import AckMarks, AckTable
from rmq._fastpath.log.queue_tail import TailSet
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

ACK = 200_051
OFFSETS = tuple(range(1_000, 1_032))
NOW_MS = 1_795_228_647_162


def bench_64_acks(benchmark):
    told = []
    table = AckTable(TailSet(), told.append)
    reactor = Reactor()
    reactor.natives.register(0, ACK, AckPath(table, "broker-a", 513))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    group, topic = "please_rename_unique_group_name", "TopicTest"
    frames = b"".join(
        encode(
            Command(
                ACK,
                {
                    "consumerGroup": group, "topic": topic, "queueId": str(queue_id),
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
        told.clear()
        for queue_id in range(2):
            table.add(
                (topic, group, queue_id, 1_000, NOW_MS), AckMarks(OFFSETS, 2**32 - 1)
            )
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)
        table.unregister_all()

    benchmark(run)
    assert not reactor.has_events
    assert sum(map(len, told)) == 2
    theirs.close()
