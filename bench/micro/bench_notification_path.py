"""16 notifications of a topic of 8 queues without messages."""

import socket

from bench.micro.bench_checkpoint_table import new_table
from bench.micro.bench_pop_table import GROUP, TOPIC, new_pops, view
from rmq._fastpath.handlers.notification_path import NotificationPath
from rmq._fastpath.log.queue_tail import TailSet
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

NOTIFICATION = 200_054
FIELDS = {
    "consumerGroup": GROUP, "topic": TOPIC, "queueId": "-1", "pollTime": "0",
    "bornTime": "1700000000000", "expType": "TAG", "exp": "*",
}  # fmt: skip


def bench_16_notifications(benchmark):
    pops = new_pops(new_table())
    pops.add(view(TailSet(), "*"))
    reactor = Reactor()
    reactor.natives.register(0, NOTIFICATION, NotificationPath(pops))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    frames = encode(Command(NOTIFICATION, FIELDS)) * 16
    taken = bytearray(1 << 16)

    def run():
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)

    benchmark(run)
    assert not reactor.has_events
    theirs.close()
