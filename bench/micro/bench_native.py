"""What a poll pays for a compiled handler that declines every frame."""

import socket

from rmq._fastpath.reactor.native import NativeHandler
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

CONTRACT_VERSION = 4  # of native.pxd
WINDOW = 64


def test_declined_frames(benchmark):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor = Reactor()
    reactor.natives.register(
        0, 310, NativeHandler(("a", "b"), ("b",), CONTRACT_VERSION)
    )
    reactor.connections.add(ours.detach())
    request = encode(Command.request(310, body=b"x" * 128)) * WINDOW

    def window():
        theirs.sendall(request)
        left = WINDOW
        while left > 0:
            reactor.poll(0)
            left -= len(reactor.take_events())

    benchmark(window)
    theirs.close()
    assert reactor.natives.counts()[0, 310][1]["unusual"] > 0
