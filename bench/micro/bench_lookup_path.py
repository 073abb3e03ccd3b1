"""64 requests for an offset through the reactor, sockets included."""

import socket

import pytest

from rmq._fastpath.handlers.lookup_path import LookupPath
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

WINDOW = 64
FIELDS = {"topic": "TopicTest", "queueId": "2", "committed": "true"}


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_lookups(benchmark, kind):
    path = LookupPath(
        lambda topic, queue_id: 7, texts=("topic",), numbers=("queueId",),
        has_offset=True, version=513,
    )  # fmt: skip
    reactor = Reactor()
    reactor.natives.register(0, 30, path)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    frames = encode(Command(30, FIELDS, serialize_type=int(kind == "binary"))) * WINDOW
    theirs.settimeout(5)

    def run():
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv(1 << 20)

    benchmark(run)
    assert not reactor.has_events
    theirs.close()
