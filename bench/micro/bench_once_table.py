"""Sends to a topic that stores a key once, and to another topic; a full table; a start.

RMQ_BENCH_ROUNDS is the number of polls (20000 for a figure, printed with `-s`), and
RMQ_BENCH_KEYS the number of keys that a start reads.
"""

import os
import socket
import statistics
import time

import pytest

from bench.micro.bench_send_path import FIELDS, WINDOW, mapped
from bench.micro.bench_send_table import new_table
from bench.micro.bench_store import HOST, store
from rmq._fastpath.handlers.once_table import OnceTable
from rmq._fastpath.handlers.send_path import SendPath
from rmq._fastpath.log.encode import RecordEncoder
from rmq._fastpath.log.queue_tail import QueueTail
from rmq._fastpath.log.tail import LogTail
from rmq._fastpath.reactor.reactor import Reactor
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.message import Message
from rmq.store.results import PutStatus

__all__ = ["store"]

ROUNDS = int(os.environ.get("RMQ_BENCH_ROUNDS", "100"))
LEAST_BYTES, TABLE_BYTES = 1 << 12, 64 << 20
KEYS = int(os.environ.get("RMQ_BENCH_KEYS", "2000"))


def key_of(number):
    return b"7F000001%024X" % number


class Sends:
    """A reactor with a topic, and a client that sends 64 messages with new keys."""

    def __init__(self, folder, once, window_ms):
        self._log = LogTail(RecordEncoder(bytes(8)))
        self._log.file = mapped(folder / f"log {window_ms}", 1 << 20)
        self._log.is_writable = True
        self._queue = QueueTail("TopicTest", 2)
        table = new_table(self._log)
        table.once = once
        table.register("TopicTest", 0, 4, self._queue, once_window_ms=window_ms)
        self._reactor = Reactor()
        self._reactor.natives.register(0, 310, SendPath(table, has_short_names=True))
        ours, self._theirs = socket.socketpair()
        ours.setblocking(False)
        self._reactor.connections.add(ours.detach(), 0, bytes(8))
        text = f"UNIQ_KEY\x01{key_of(0).decode()}\x02TAGS\x01a\x02"
        frame = encode(Command(310, {**FIELDS, "i": text}, bytes(128)))
        self._before, self._after = frame.split(key_of(0))
        self._sent = 0

    def send(self):
        self._log.file.write_position = 0
        self._queue.truncate_to(0, -1)
        keys = map(key_of, range(self._sent, self._sent + WINDOW))
        self._sent += WINDOW
        self._theirs.sendall(
            b"".join([self._before + key + self._after for key in keys])
        )

    def poll(self):
        self._reactor.poll(0)

    def end(self):
        """Receive the answers; a poll that was interrupted left some requests."""
        while self._log.put_messages < self._sent:
            self._reactor.poll(0)
        self._theirs.recv(1 << 20)

    def close(self):
        assert not self._reactor.has_events
        self._theirs.close()


def bench_64_keys(benchmark, tmp_path):
    """Polls of 64 sends to a topic with a window; another topic is polled in turn.

    The table is full, as it is after some minutes: each key removes another.
    """
    once = OnceTable(TABLE_BYTES if ROUNDS > 1_000 else LEAST_BYTES)
    for number in range(once.capacity):
        once.add(b"Other", b"%d" % number, 0, 0)
    with_window, without = (Sends(tmp_path, once, window) for window in (1_000, 0))
    times_ns = {with_window: [], without: []}

    def prepare():
        for each in (without, with_window):
            each.send()
        started = time.perf_counter_ns()
        without.poll()
        times_ns[without].append(time.perf_counter_ns() - started)
        without.end()

    def run():
        started = time.perf_counter_ns()
        with_window.poll()
        times_ns[with_window].append(time.perf_counter_ns() - started)
        with_window.end()

    benchmark.pedantic(run, setup=prepare, rounds=ROUNDS)
    plain_us, once_us = (
        statistics.median(times_ns[each]) / WINDOW / 1_000
        for each in (without, with_window)
    )
    print(f"a send: {plain_us:.3f} us, with a window {once_us - plain_us:+.3f} us")
    for each in (with_window, without):
        each.close()


@pytest.mark.parametrize("size", [LEAST_BYTES, TABLE_BYTES], ids=["4 KiB", "64 MiB"])
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
