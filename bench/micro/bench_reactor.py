"""Frames through the reactor over a socket pair: one request and its reply."""

import itertools
import socket

import pytest

from rmq._fastpath.log.watermark import Watermark
from rmq._fastpath.reactor.connections import EventKind
from rmq._fastpath.reactor.reactor import Reactor

FRAME = (200).to_bytes(4, "big") + (100).to_bytes(4, "big") + b"x" * 196


@pytest.fixture
def reactor():
    return Reactor()


@pytest.fixture
def connect(reactor):
    """Give (token, the peer's socket) of a new connection."""
    peers = []

    def connect_():
        ours, peer = socket.socketpair()
        ours.setblocking(False)
        peers.append(peer)
        return reactor.connections.add(ours.detach()), peer

    yield connect_
    for peer in peers:
        peer.close()


def test_idle_poll(benchmark, reactor, connect):
    for _ in range(100):
        connect()
    benchmark(reactor.poll, 1)


@pytest.mark.parametrize("count", [1, 32])
def test_echo(benchmark, reactor, connect, count):
    token, peer = connect()
    requests = FRAME * count

    def run():
        peer.sendall(requests)
        answered = 0
        while answered < count:
            reactor.poll(1)
            for kind, where, _frame in reactor.take_events():
                assert kind == EventKind.FRAME
                reactor.send(where, FRAME)
                answered += 1
            reactor.flush()
        return len(peer.recv(len(requests), socket.MSG_WAITALL))

    assert benchmark(run) == len(requests)
    assert reactor.connections.is_open(token)


def test_held_reply(benchmark, reactor, connect):
    token, peer = connect()
    watermark = Watermark()
    reactor.held.attach(watermark)
    marks = itertools.count(1)

    def run():
        mark = next(marks)
        reactor.hold_reply(token, FRAME, mark, 1_000_000, b"")
        watermark.advance(mark)
        reactor.poll(1)
        reactor.flush()
        return len(peer.recv(len(FRAME), socket.MSG_WAITALL))

    assert benchmark(run) == len(FRAME)
