"""A connection that comes and goes, and the search for idle ones among a thousand."""

import socket

from rmq._fastpath.reactor.reactor import Reactor

CONNECTIONS = 1_000


def bench_add_and_close(benchmark):
    reactor = Reactor()
    ours, theirs = socket.socketpair()
    ours.setblocking(False)

    def turn():
        token = reactor.connections.add(ours.dup().detach())
        is_closed = reactor.connections.close(token)
        assert is_closed

    benchmark(turn)
    ours.close()
    theirs.close()
    assert len(reactor.connections) == 0


def bench_idle_since(benchmark):
    reactor = Reactor()
    ours, theirs = socket.socketpair()
    reactor.poll(1_000)
    for _ in range(CONNECTIONS):
        reactor.connections.add(ours.dup().detach())
    assert benchmark(reactor.connections.idle_since, 999, 0) == []
    assert len(reactor.connections.idle_since(1_000, 0)) == CONNECTIONS
    ours.close()
    theirs.close()
