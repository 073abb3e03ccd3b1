"""Reading the headers of a lock-step client for a compiled handler that declines.

The first frame is scanned and learned; the template reads the others.
"""

import socket

import pytest

from rmq._fastpath.reactor.native import NativeHandler
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

CONTRACT_VERSION = 4  # of native.pxd
FIELDS = {"a": "producers", "b": "T", "e": "3", "f": "0", "g": "1700000000000"}


@pytest.mark.parametrize("varying", [(), ("e", "g")], ids=["same", "varying"])
def bench_one_header(benchmark, varying):
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor = Reactor()
    reactor.natives.register(
        0, 310, NativeHandler(tuple(FIELDS), varying, CONTRACT_VERSION)
    )
    reactor.connections.add(ours.detach())
    frame = encode(Command(310, FIELDS))

    def one():
        theirs.sendall(frame)
        reactor.poll(0)
        reactor.take_events()

    benchmark(one)
    theirs.close()
    assert reactor.natives.counts()[0, 310][1]["unusual"] > 0
