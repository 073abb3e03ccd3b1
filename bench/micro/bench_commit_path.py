"""64 commits through the reactor and the compiled handler, sockets included."""

import socket

import pytest

from rmq._fastpath.handlers.commit_path import CommitPath
from rmq._fastpath.handlers.commit_table import CommitTable
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

WINDOW = 64
FIELDS = {"consumerGroup": "please_rename_unique_group_name", "topic": "TopicTest"}


@pytest.mark.parametrize("kind", ["json", "binary"])
def bench_64_commits(benchmark, kind):
    told = []
    table = CommitTable(told.append)
    for queue_id in range(8):
        table.register(FIELDS["consumerGroup"], FIELDS["topic"], queue_id)
    reactor = Reactor()
    reactor.natives.register(0, 15, CommitPath(table, 513))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    frames = b"".join(
        encode(
            Command(
                15,
                {**FIELDS, "queueId": str(n % 8), "commitOffset": str(1_000 + n)},
                serialize_type=int(kind == "binary"),
            )
        )
        for n in range(WINDOW)
    )
    taken = bytearray(1 << 16)

    def run():
        told.clear()
        theirs.sendall(frames)
        while reactor.poll(0):
            pass
        theirs.recv_into(taken)

    benchmark(run)
    assert not reactor.has_events
    assert sum(map(len, told)) == WINDOW
    theirs.close()
