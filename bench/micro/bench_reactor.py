"""One poll of the reactor: 64 frames in, 64 replies out, over a socket pair."""

import socket

import pytest

from rmq._fastpath import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

WINDOW = 64


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    yield ours, theirs
    theirs.close()


def test_poll_take_and_flush(benchmark, ends):
    ours, theirs = ends
    reactor = Reactor()
    token = reactor.add(ours.detach())
    request = encode(Command.request(310, body=b"x" * 128)) * WINDOW
    reply = encode(Command.request(310).reply())

    def window():
        theirs.sendall(request)
        reactor.poll(0)
        for _ in reactor.take_events():
            reactor.send(token, reply)
        reactor.flush()
        theirs.recv(1 << 20)

    benchmark(window)
    assert reactor.frames % WINDOW == 0
