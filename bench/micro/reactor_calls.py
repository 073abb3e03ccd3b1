"""Frames that a reactor serves, for the benchmarks of compiled handlers."""

import socket

from rmq._fastpath.reactor.reactor import Reactor

MAX_ANSWERS = 1 << 20


def measure_frames(benchmark, code, handler, frames, reset):
    """Measure the handler of a code, sockets included; `reset` precedes each round."""
    reactor = Reactor()
    reactor.natives.register(0, code, handler)
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    theirs.settimeout(5)
    answers = bytearray(MAX_ANSWERS)

    def run():
        reset()
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv_into(answers)

    benchmark(run)
    assert not reactor.has_events
    theirs.close()
