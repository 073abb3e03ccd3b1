"""Sends whose answers are lost: no error, nothing lost, and keys keep their order."""

import asyncio
import contextlib
import itertools
import socket
import threading

import pytest

from rmq.client import Message, Producer, blocking
from rmq.testing import BrokerThread

EVERY = 7
"""Of the answers of the broker one in so many is lost, with its connection."""


class Losing:
    """Passes bytes on to a broker; loses some of its answers."""

    def __init__(self):
        self.lost = 0
        self._answers = 0
        self._server = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        self._sockets = [self._server]
        self.port = None

    def start(self):
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        for each in self._sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._server.accept()
                broker = socket.create_connection(("127.0.0.1", self.port))
                self._sockets += [client, broker]
                for function, *sockets in (
                    (self._pass_requests, client, broker),
                    (self._pass_answers, broker, client),
                ):
                    threading.Thread(target=function, args=sockets, daemon=True).start()

    def _pass_requests(self, client, broker):
        with contextlib.suppress(OSError):
            while data := client.recv(1 << 16):
                broker.sendall(data)

    def _pass_answers(self, broker, client):
        with contextlib.suppress(OSError):
            while data := broker.recv(1 << 16):
                self._answers += 1
                if self._answers % EVERY == 0:
                    self.lost += 1
                    client.shutdown(socket.SHUT_RDWR)
                    return
                client.sendall(data)


@pytest.fixture
def losing(tmp_path):
    proxy = Losing()
    with BrokerThread(tmp_path, {"rmq.advertise": proxy.address}) as broker:
        proxy.port = broker.node.broker.port
        broker.create_topic("T", 4)
        proxy.start()
        try:
            yield proxy, broker
        finally:
            proxy.close()


@pytest.fixture
def two_groups(tmp_path):
    """A broker that loses answers, and one of another group; they store keys once."""
    proxy = Losing()
    once = {"rmq.onceWindowMs": "60000"}
    lossy = once | {"brokerName": "a", "rmq.advertise": proxy.address}
    with BrokerThread(tmp_path / "a", lossy) as one:
        other = once | {"brokerName": "b", "namesrvAddr": one.name_server}
        proxy.port = one.node.broker.port
        proxy.start()
        try:
            with BrokerThread(tmp_path / "b", other) as two:
                for broker in (one, two):
                    broker.create_topic("T", 4)
                yield proxy, one, two
        finally:
            proxy.close()


def message_of(key, number):
    return Message("T", f"{key} {number}".encode())


def check(broker, proxy, sent):
    """Each key's messages are there; their first occurrences are in order."""
    assert proxy.lost >= 3, "answers were lost"
    first = {}
    queues = {}
    for record in broker.messages("T"):
        key, _, number = record.body.decode().partition(" ")
        first.setdefault(key, {}).setdefault(int(number), None)
        queues.setdefault(key, set()).add(record.queue_id)
    assert {key: list(numbers) for key, numbers in first.items()} == sent
    assert all(len(each) == 1 for each in queues.values())


def test_keys_keep_their_order(losing):
    proxy, broker = losing

    async def scenario():
        async with Producer(broker.name_server) as producer:

            async def send_one_after_another(key):
                for number in range(30):
                    await producer.send(message_of(key, number), key=key)

            async def send_many(key):
                messages = [message_of(key, number) for number in range(200)]
                await producer.send_many(messages, key=key)

            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(send_one_after_another("a"))
                tasks.create_task(send_one_after_another("b"))
                tasks.create_task(send_many("c"))

    asyncio.run(scenario())
    short, long = list(range(30)), list(range(200))
    check(broker, proxy, {"a": short, "b": short, "c": long})


def test_keys_keep_their_order_in_threads(losing):
    proxy, broker = losing
    with blocking.Producer(broker.name_server) as producer:
        for number in range(40):
            producer.send(message_of("a", number), key="a")
    check(broker, proxy, {"a": list(range(40))})


def test_without_a_key_everything_is_stored(losing):
    proxy, broker = losing

    async def scenario():
        async with Producer(broker.name_server, linger_ms=None) as producer:
            for number in range(40):
                await producer.send(Message("T", b"%d" % number))

    asyncio.run(scenario())
    assert proxy.lost >= 3
    stored = {int(record.body) for record in broker.messages("T")}
    assert stored == set(range(40))


def test_a_sticky_producer_repeats_sends_at_their_group(two_groups):
    proxy, *brokers = two_groups

    async def scenario():
        numbers = itertools.count()
        async with Producer(brokers[0].name_server, sticky=True) as producer:
            for _ in range(40):
                await producer.send(Message("T", b"%d" % next(numbers)))
                await producer.enqueue(Message("T", b"%d" % next(numbers)))
            await producer.flush()
            for _ in range(10):
                batch = [Message("T", b"%d" % next(numbers)) for _ in range(20)]
                await producer.send_many(batch)
        return next(numbers)

    count = asyncio.run(scenario())
    assert proxy.lost >= 3
    found = [[int(each.body) for each in one.messages("T")] for one in brokers]
    assert all(found), "both groups got messages"
    assert sorted(itertools.chain(*found)) == list(range(count))
