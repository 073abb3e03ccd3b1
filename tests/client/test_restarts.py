"""A restart of a broker, or a late name server, is no error of a default client."""

import asyncio
import os
import threading
import time

import pytest

from rmq.client import Consumer, Message, Producer, blocking
from tests.interop.processes import Server, broker_arguments, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

RATE = int(os.environ.get("RMQ_RESTART_RATE", "500"))
"""Sends in a second."""

RUN_S = 1.0
"""How long it sends before and after the outage."""


class Restarting:
    """A broker and its name server in one process, at fixed addresses."""

    def __init__(self, folder):
        ports = free_port(), free_port()
        self.name_server = f"127.0.0.1:{ports[1]}"
        self._arguments = broker_arguments(
            folder, f"listenPort={ports[0]}", f"rmq.namesrv.listenPort={ports[1]}"
        )
        self._server = None

    def start(self):
        self._server = Server(*self._arguments)

    def stop(self):
        if self._server is not None:
            assert self._server.stop() == 0
            self._server = None

    def stop_for(self, seconds):
        self.stop()
        time.sleep(seconds)
        self.start()


@pytest.fixture
def restarting(disk_path):
    found = Restarting(disk_path)
    yield found
    found.stop()


async def send_and_consume(name_server, outage, seen, errors):
    """Send at a steady rate while `outage` runs in a thread; return what was stored."""
    stored, has_ended = [], asyncio.Event()
    async with (
        Producer(name_server) as producer,
        Consumer(name_server, "group", "T", start="first") as consumer,
    ):

        async def send(number):
            try:
                await producer.send(Message("T", b"%d" % number))
            except Exception as error:
                errors.append(error)
            else:
                stored.append(b"%d" % number)

        async def enqueue(number):
            await producer.enqueue(Message("T", b"%d" % number))
            stored.append(b"%d" % number)

        async def send_all():
            begun, tasks = time.monotonic(), []
            while not has_ended.is_set():
                due = int((time.monotonic() - begun) * RATE)
                for number in range(len(tasks), due):
                    call = enqueue if number % 2 else send
                    tasks.append(asyncio.create_task(call(number)))
                await asyncio.sleep(0.005)
            await asyncio.gather(*tasks)
            await producer.flush()

        async def receive():
            async for message in consumer:
                seen.add(message.body)

        receiving = asyncio.create_task(receive())
        sending = asyncio.create_task(send_all())
        await asyncio.sleep(RUN_S)
        await asyncio.to_thread(outage)
        await asyncio.sleep(RUN_S)
        has_ended.set()
        await sending
        while not seen.issuperset(stored):
            assert not receiving.done()
            await asyncio.sleep(0.05)
        consumer.stop()
        await receiving
    return stored


@pytest.mark.parametrize("seconds", [2, 10])
def test_a_restart_is_no_error(restarting, seconds, caplog):
    restarting.start()
    seen, errors = set(), []
    stored = asyncio.run(
        send_and_consume(
            restarting.name_server,
            lambda: restarting.stop_for(seconds),
            seen,
            errors,
        )
    )
    assert errors == []
    assert len(stored) > RATE * (seconds + RUN_S)
    lines = [each for each in caplog.records if each.name.startswith("rmq.client")]
    assert 2 <= len(lines) <= 10, [each.getMessage() for each in lines]
    assert any("is back" in each.getMessage() for each in lines)


@pytest.mark.parametrize("seconds", [2, 10])
def test_a_restart_is_no_error_in_threads(restarting, seconds):
    restarting.start()
    seen, errors, stored = set(), [], set()
    has_ended = threading.Event()
    with (
        blocking.Producer(restarting.name_server) as producer,
        blocking.Consumer(
            restarting.name_server, "group", "T", start="first"
        ) as consumer,
    ):

        def send(thread):
            number = 0
            while not has_ended.is_set():
                body = b"%d-%d" % (thread, number)
                try:
                    if number % 2:
                        producer.send(Message("T", body))
                    else:
                        producer.enqueue(Message("T", body))
                except Exception as error:
                    errors.append(error)
                stored.add(body)
                number += 1
                time.sleep(0.02)

        def receive():
            for message in consumer:
                seen.add(message.body)

        threads = [threading.Thread(target=send, args=[n]) for n in range(4)]
        receiver = threading.Thread(target=receive)
        for each in (*threads, receiver):
            each.start()
        time.sleep(RUN_S)
        restarting.stop_for(seconds)
        time.sleep(RUN_S)
        has_ended.set()
        for each in threads:
            each.join()
        producer.flush()
        while not seen >= stored:
            time.sleep(0.05)
        consumer.stop()
        receiver.join()
    assert errors == []


def test_a_name_server_that_comes_later(restarting):
    late = threading.Timer(10, restarting.start)

    async def scenario():
        async with (
            Producer(restarting.name_server) as producer,
            asyncio.TaskGroup() as tasks,
        ):
            tasks.create_task(producer.send(Message("T", b"x")))
            async with Consumer(
                restarting.name_server, "g", "T", start="first"
            ) as consumer:
                assert (await anext(consumer)).body == b"x"

    late.start()
    try:
        asyncio.run(scenario())
    finally:
        late.join()


def test_a_name_server_that_comes_later_in_threads(restarting):
    late = threading.Timer(10, restarting.start)
    late.start()
    try:
        with blocking.Producer(restarting.name_server) as producer:
            producer.send(Message("T", b"x"))
        with blocking.Consumer(
            restarting.name_server, "g", "T", start="first"
        ) as consumer:
            assert next(consumer).body == b"x"
    finally:
        late.join()
