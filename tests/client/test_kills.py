"""kill -9 of broker, consumer and producer: what was acknowledged arrives, in order."""

import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rmq.client import ClientError, Message
from rmq.client.blocking import Consumer, Producer
from tests.history import History
from tests.interop.processes import Server, broker_arguments, free_port
from tests.waiting import wait_until

pytestmark = [pytest.mark.crash, pytest.mark.timeout(120)]

KILLS = int(os.environ.get("RMQ_CRASH_ROUNDS", "100"))
STEP = 20
"""Messages that are stored, and as many that arrive, between two kills."""

CONSUME = """
import asyncio, sys
from rmq.client import Consumer

async def main(address):
    options = {"start": "first", "commit_interval_s": 0.2}
    async with Consumer(address, "killed", "T", **options) as consumer:
        async for message in consumer:
            print(message.body.decode(), flush=True)

asyncio.run(main(sys.argv[1]))
"""
PRODUCE = """
import asyncio, itertools, sys
from rmq.client import ClientError, Message, Producer

async def main(address, first):
    async with Producer(address, timeout_ms=1_000) as producer:

        async def send_all(key):
            for number in itertools.count(first):
                text = f"{key} {number}"
                print("sends", text, flush=True)
                try:
                    await producer.send(Message("T", text.encode()), key=key)
                except ClientError:
                    await asyncio.sleep(0.05)
                else:
                    print("stored", text, flush=True)
                await asyncio.sleep(0.005)

        await asyncio.gather(*map(send_all, "abc"))

asyncio.run(main(sys.argv[1], int(sys.argv[2])))
"""


class Program:
    """A program in a process of its own; `hear` is called with each of its lines."""

    def __init__(self, hear, program, *arguments):
        self._hear = hear
        self._process = subprocess.Popen(
            [sys.executable, "-c", program, *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self):
        for line in self._process.stdout:
            if line.endswith("\n"):  # a kill may have cut the last one
                self._hear(line.strip())

    def end(self, how=signal.SIGKILL):
        self._process.send_signal(how)
        self._process.wait(20)
        self._thread.join(5)
        self._process.stdout.close()


def grown(said):
    wanted = len(said) + STEP
    return lambda: len(said) >= wanted


class Sends:
    """What producers say: the history of their sends, and what was stored."""

    def __init__(self):
        self.history, self.stored = History(), set()

    def hear(self, line):
        event, _, text = line.partition(" ")
        if event == "sends":
            self.history.invoke(text, lane=text[0])
        else:
            self.history.answer(text)
            self.stored.add(text)


@pytest.mark.timeout(60 + 10 * KILLS)
def test_nothing_that_was_acknowledged_is_lost(disk_path):
    ports = [f"listenPort={free_port()}", f"rmq.namesrv.listenPort={free_port()}"]
    arguments = broker_arguments(disk_path, *ports, "flushDiskType=SYNC_FLUSH")
    server = Server(*arguments)
    sends, said = Sends(), {}
    producer = Program(sends.hear, PRODUCE, server.namesrv, "0")
    consumer = Program(said.setdefault, CONSUME, server.namesrv)
    for kill in range(KILLS):
        wait_until(grown(sends.stored), f"messages are stored before kill {kill}")
        wait_until(grown(said), f"messages arrive before kill {kill}")
        if kill % 3 == 0:
            server.kill()
            server = Server(*arguments)
        elif kill % 3 == 1:
            consumer.end()
            consumer = Program(said.setdefault, CONSUME, server.namesrv)
        else:
            producer.end()
            first = str(1_000_000 * (kill + 1))
            producer = Program(sends.hear, PRODUCE, server.namesrv, first)
    producer.end()
    wait_until(lambda: sends.stored <= said.keys(), "all that was stored arrives")
    consumer.end(signal.SIGTERM)
    server.stop()
    assert sends.history.faults((text, None) for text in said) == []


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
