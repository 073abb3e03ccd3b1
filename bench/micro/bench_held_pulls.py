"""A pull that waits, the message that comes for it, and its answer, over a socket."""

import socket

import pytest

from bench.micro.bench_pull_path import FIELDS, MESSAGES, PROPERTIES, reactor_with
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

SUSPENDED = {**FIELDS, "sysFlag": "2"}


@pytest.mark.parametrize("groups", [1, 10])
def bench_wait_and_answer(benchmark, tmp_path, groups):
    """`groups` pulls of one view wait for each message: one answer each."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor, log, queue, held = reactor_with(tmp_path, 128, None)
    held.set_limits(total=100, per_connection=100, per_view=100, suspend_ms=60_000)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    offset = MESSAGES
    properties = PROPERTIES.format("TagA")
    taken = bytearray(1 << 20)

    def run():
        nonlocal offset
        pull = encode(Command(11, {**SUSPENDED, "queueOffset": str(offset)}))
        theirs.sendall(pull * groups)
        reactor.poll(0)
        assert held.waiting == groups
        log.append(
            queue, True, 0, 0, 1, bytes(8), 1, 0, 0, bytes(128), properties, None
        )
        offset += 1
        while held.waiting:
            reactor.poll(0)
        theirs.recv_into(taken)

    benchmark.pedantic(run, rounds=300, iterations=10)
    assert held.counts().woken == (offset - MESSAGES) * groups
    theirs.close()
