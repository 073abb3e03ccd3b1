"""Replies that wait for the disk: taken in, released by one step of the watermark."""

import socket

from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.reactor import Reactor

WINDOW = 64


def bench_hold_and_release(benchmark):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor, durable = Reactor(), Watermark()
    reactor.held.attach(durable)
    token = reactor.connections.add(ours.detach())
    reply = b"r" * 100
    end = 0

    def window():
        nonlocal end
        reactor.take_events()
        for i in range(WINDOW):
            assert reactor.hold_reply(token, reply, end + i, 1_000, reply)
        end += WINDOW
        durable.advance(end)
        reactor.flush()
        assert len(theirs.recv(1 << 20)) == WINDOW * len(reply)

    benchmark(window)
    theirs.close()
    assert reactor.held.count == 0
