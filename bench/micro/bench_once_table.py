"""Sends to a topic that stores a key once, and to another topic; a full table."""

import socket

import pytest

from bench.micro.bench_send_path import FIELDS, WINDOW, log, queue
from bench.micro.bench_send_table import new_table
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode

__all__ = ["log", "queue"]

ROUNDS = 256
TABLE_BYTES = 64 << 20


@pytest.mark.parametrize("window_ms", [0, 1], ids=["without", "once"])
def bench_64_keys(benchmark, log, queue, window_ms):
    """Each round is 10 ms later, so that no key is known in a window of 1 ms."""
    now_ms = 0

    def read_clock():
        nonlocal now_ms
        now_ms += 10
        return now_ms

    table = new_table(log, now_ms=read_clock)
    table.once = OnceTable(TABLE_BYTES)
    table.register("TopicTest", 0, 4, queue, once_window_ms=window_ms)
    reactor = Reactor()
    reactor.natives.register(0, 310, SendPath(table, has_short_names=True))
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    reactor.connections.add(ours.detach(), 0, bytes(8))
    batches = [
        b"".join(
            encode(
                Command(
                    310,
                    {**FIELDS, "i": f"UNIQ_KEY\x017F000001{number:024X}\x02"},
                    bytes(128),
                )
            )
            for number in range(first, first + WINDOW)
        )
        for first in range(0, ROUNDS * WINDOW, WINDOW)
    ]
    turn = 0

    def run():
        nonlocal turn
        log.file.write_position = 0
        queue.truncate_to(0, -1)
        theirs.sendall(batches[turn % ROUNDS])
        turn += 1
        reactor.poll(0)
        theirs.recv(1 << 20)

    benchmark(run)
    assert not reactor.has_events
    theirs.close()


@pytest.mark.parametrize("size", [1 << 12, TABLE_BYTES], ids=["4 KiB", "64 MiB"])
def bench_add_to_a_full_table(benchmark, size):
    """The calls from Python cost most; the difference of both sizes is the memory's."""
    table = OnceTable(size)
    for number in range(table.capacity):
        table.add(b"TopicTest", b"%032X" % number, number, number)
    number = 1 << 40

    def run():
        nonlocal number
        number += 1
        table.add(b"TopicTest", b"%032X" % number, number, number)

    benchmark(run)
    assert table.count == table.capacity
