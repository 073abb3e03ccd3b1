"""What a kill of the broker forgets of acks, with the keys of `--for tasks`."""

import time

import pytest

from rmq.cli.server.broker import PURPOSES
from rmq.integrations.names import Names
from rmq.integrations.queue_reader import QueueReader
from rmq.integrations.task_link import TaskLink
from tests.interop.processes import Server, broker_arguments, free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]

SETTLED_S = 3.0
"""Older than what a kill may forget."""


def open_reader(server, prefetch_count):
    link = TaskLink([server.namesrv])
    return QueueReader(link, Names(), ["q"], prefetch_count=prefetch_count)


def receive_all(reader, seconds):
    found, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        message = reader.receive(0.2)
        if message is not None:
            found.append(message.message.body)
    return found


def test_settled_acks_and_leases_survive_a_kill(tmp_path):
    port = free_port()
    keys = [f"{key}={value}" for key, value in PURPOSES["tasks"].items()]
    ports = [f"listenPort={port}", f"rmq.namesrv.listenPort={port + 3}"]
    arguments = broker_arguments(tmp_path, "rmq.console=false", *ports, *keys)
    server = Server(*arguments)
    try:
        first = open_reader(server, 32)
        for number in range(100):
            first.link.send("q", 0, b"%d" % number, {})
        acked = set()
        for _ in range(50):
            message = first.receive(5)
            acked.add(message.message.body)
            first.ack(message.tag)
        held = {first.receive(5).message.body for _ in range(10)}
        time.sleep(SETTLED_S)
        server.kill()
        server = Server(*arguments)
        second = open_reader(server, 100)
        again = set(receive_all(second, 2.0))
        assert not again & acked
        assert not again & held
        assert again
        second.close()
        first.close()
    finally:
        server.kill()
