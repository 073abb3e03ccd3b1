"""A restart of a broker, or a late name server, is no error of a default client."""

import asyncio
import threading
import time

import pytest

from rmq.client import Consumer, Message, Producer, blocking
from tests.client.steady_load import (
    RATE,
    RUN_S,
    send_and_consume,
    send_and_consume_in_threads,
)
from tests.interop.processes import Server, broker_arguments, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


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
            assert self._server.stop() == 0, "".join(self._server.lines)
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
    errors = []
    send_and_consume_in_threads(
        restarting.name_server, lambda: restarting.stop_for(seconds), errors
    )
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
