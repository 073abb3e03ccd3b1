"""64 heartbeats that are known, through the reactor and the compiled handler."""

import socket

import pytest

from rmq._fastpath.handlers.heartbeat_path import HeartbeatPath
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

WINDOW = 64
FIELDS = {"IS_SUPPORT_HEART_BEAT_V2": "true", "IS_SUB_CHANGE": "true"}


@pytest.mark.parametrize("size", [300, 3_000])
def bench_64_heartbeats(benchmark, size):
    told = []
    path = HeartbeatPath(told.append, FIELDS, 513)
    reactor = Reactor()
    reactor.natives.register(0, 34, path)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    token = reactor.connections.add(ours.detach(), 0, bytes(8))
    path.register(token, bytes(size), "value", version=513, language=0)
    frame = encode(Command(34, body=bytes(size), version=513))
    taken = bytearray(1 << 16)

    def run():
        told.clear()
        theirs.sendall(frame * WINDOW)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)

    benchmark(run)
    assert not reactor.has_events
    assert sum(map(len, told)) == WINDOW
    theirs.close()
