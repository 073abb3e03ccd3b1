"""kill -9 of broker and consumer: what was acknowledged arrives, in order."""

import itertools
import signal
import subprocess
import sys
import threading
import time

import pytest

from rmq.client import ClientError, Message
from rmq.client.blocking import Consumer, Producer
from tests.interop.processes import Server, broker_arguments, free_port

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

ROUNDS = 6
PROGRAM = """
import asyncio, sys
from rmq.client import Consumer

async def main(address):
    options = {"start": "first", "commit_interval_s": 0.2}
    async with Consumer(address, "killed", "T", **options) as consumer:
        async for message in consumer:
            print(message.body.decode(), flush=True)

asyncio.run(main(sys.argv[1]))
"""


class Reader:
    """A consumer in a process of its own, and what it has said."""

    def __init__(self, address, said):
        self._said = said
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, address],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            self._said.append(line.strip())

    def end(self, how):
        self._process.send_signal(how)
        self._process.wait(20)
        self._thread.join(5)
        self._process.stdout.close()


def test_nothing_that_was_acknowledged_is_lost(disk_path):
    ports = [f"listenPort={free_port()}", f"rmq.namesrv.listenPort={free_port()}"]
    arguments = broker_arguments(disk_path, *ports, "flushDiskType=SYNC_FLUSH")
    server = Server(*arguments)
    stored, said = [], []
    with Producer(server.namesrv, timeout_ms=1_000) as producer:
        producer.send(Message("T", b"first"), key="k")
        reader = Reader(server.namesrv, said)
        numbers = itertools.count()
        for round_ in range(ROUNDS):
            end = time.monotonic() + 1.5
            killer = threading.Timer(0.7, server.kill)
            killer.start()
            while time.monotonic() < end and not (killer.finished.is_set() and stored):
                send(producer, next(numbers), stored)
            killer.join()
            server = Server(*arguments)
            if round_ % 2:
                reader.end(signal.SIGKILL)
                reader = Reader(server.namesrv, said)
            sent = len(stored)
            while len(stored) < sent + 20:
                send(producer, next(numbers), stored)
    end = time.monotonic() + 40
    while not set(stored) <= set(said) and time.monotonic() < end:
        time.sleep(0.1)
    reader.end(signal.SIGTERM)
    server.stop()
    assert set(stored) <= set(said)
    firsts = [each for each in dict.fromkeys(said) if each in set(stored)]
    assert firsts == sorted(firsts, key=int)


def send(producer, number, stored):
    try:
        producer.send(Message("T", b"%d" % number), key="k")
    except ClientError:
        time.sleep(0.05)
    else:
        stored.append(str(number))


def test_a_consumer_for_threads_goes_on_after_a_kill(disk_path):
    ports = [f"listenPort={free_port()}", f"rmq.namesrv.listenPort={free_port()}"]
    arguments = broker_arguments(disk_path, *ports)
    server = Server(*arguments)
    with (
        Producer(server.namesrv) as producer,
        Consumer(server.namesrv, "g", {"T": "*"}, start="first") as consumer,
    ):
        producer.send(Message("T", b"1"))
        assert next(consumer).body == b"1"
        server.kill()
        server = Server(*arguments)
        sent = False
        while not sent:
            try:
                producer.send(Message("T", b"2"))
                sent = True
            except ClientError:
                time.sleep(0.1)
        bodies = {next(consumer).body}
        while b"2" not in bodies:
            bodies.add(next(consumer).body)
    server.stop()
