"""Connections that begin and end."""

from tests.fastpath.http2 import caller as h2


def bench_connections(benchmark, calls):
    def connect():
        caller = h2.Caller(calls.caller.wire, calls.caller.server)
        calls.caller.wire.reactor.connections.close(caller.token)
        calls.caller.wire.peers.pop().close()

    benchmark(connect)
    assert calls.caller.server.peers == 1
