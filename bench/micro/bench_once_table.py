"""Sends to a topic that stores a key once, and to another topic; a full table; a start.

RMQ_BENCH_KEYS is the number of keys that a start reads.
"""

import os
import socket

import pytest

from bench.micro.bench_send_path import FIELDS, WINDOW, log, queue
from bench.micro.bench_send_table import new_table
from bench.micro.bench_store import HOST, store
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.message import Message
from rmq.store.results import PutStatus

__all__ = ["log", "queue", "store"]

ROUNDS = 4_096
"""Their keys need more slots than the processor's caches have."""

TABLE_BYTES = 64 << 20
KEYS = int(os.environ.get("RMQ_BENCH_KEYS", "2000"))


def key_of(number):
    return b"7F000001%024X" % number


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
    text = f"UNIQ_KEY\x01{key_of(0).decode()}\x02"
    frame = encode(Command(310, {**FIELDS, "i": text}, bytes(128)))
    before, after = frame.split(key_of(0))
    batches = [
        b"".join(
            before + key_of(number) + after for number in range(first, first + WINDOW)
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


def bench_start_with_keys(benchmark, store):
    """Four queues, 128 bytes each; the keys of the whole log."""
    for number in range(KEYS):
        text = f"TAGS\x01a\x02UNIQ_KEY\x01{key_of(number).decode()}\x02"
        put = store.writes.put(
            Message("T", number % 4, bytes(128), 0, 0, 0, HOST, properties_text=text)
        )
        assert put.status is PutStatus.PUT_OK

    def run():
        table = OnceTable(TABLE_BYTES)
        store.reads.load_keys(table, ["T"], (), 0)
        return table

    assert benchmark(run).count == min(KEYS, run().capacity)
