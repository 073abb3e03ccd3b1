"""Cancellations, lost brokers and bad servers: nothing hangs, nothing is lost."""

import asyncio
import itertools
import os
import socket
import threading
import time

import anyio
import anyio.to_thread
import pytest

from rmq.client import (
    Client,
    ClientForked,
    Consumer,
    Message,
    NameServerUnreachable,
    NoRoute,
    Producer,
    SendFailed,
    SendRefused,
    SendTimeout,
)
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.testing import BrokerThread
from tests.interop.processes import free_port

numbers = itertools.count()


@pytest.fixture
def topic(broker):
    name = f"faults-{next(numbers)}"
    broker.create_topic(name, 2)
    return name


async def steps_of(function):
    """Cancel a call at its first await, its second, and so on until it ends."""
    for checkpoints in range(40):
        done = False
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel_later(count=checkpoints, scope=scope):
                    for _ in range(count):
                        await anyio.lowlevel.checkpoint()
                    scope.cancel()

                tasks.start_soon(cancel_later)
                await function()
                done = True
        if done and not scope.cancelled_caught:
            return checkpoints
    return 40


def test_a_send_is_cancelled_at_each_await(broker, loop, topic):
    async def scenario():
        async with Producer(broker.name_server, linger_ms=None) as producer:
            await producer.send(Message(topic, b"first"))

            async def one():
                await producer.send(Message(topic, b"x"))

            async def keyed():
                await producer.send(Message(topic, b"x"), key="k")

            async def many():
                await producer.send_many([Message(topic, b"x")] * 3)

            for function in (one, keyed, many):
                await steps_of(function)
                result = await producer.send(Message(topic, b"after"), key="k")
                assert result.queue_offset >= 0
            await anyio.sleep(0.02)
            assert producer._budget.count == 0
            for connection in producer.client.connections.values():
                assert connection.codec.pending_count == 0

    loop(scenario)


def test_an_opening_is_cancelled_at_each_await(broker, loop, topic):
    async def scenario():
        async def open_and_close():
            async with Consumer(broker.name_server, "opened", topic):
                pass

        await steps_of(open_and_close)
        async with Consumer(broker.name_server, "opened", topic) as consumer:
            while not consumer.assignment():  # noqa: ASYNC110 - until ghosts are gone
                await anyio.sleep(0.01)

    loop(scenario)


@pytest.mark.slow
def test_a_cancelled_iteration_loses_nothing(broker, loop, topic):
    for number in range(20):
        broker.send(topic, b"%d" % number)

    async def scenario():
        seen = []
        async with Consumer(
            broker.name_server, f"g-{topic}", topic, start="first"
        ) as it:
            while len(seen) < 20:
                with anyio.move_on_after(0.001):
                    async for message in it:
                        seen.append(message.queue_offset)
                        await anyio.lowlevel.checkpoint()
        assert sorted(seen) == list(range(20))

    loop(scenario)


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("batch", [1, 3])
def test_a_cancelled_run_leaves_its_messages_to_the_next(
    broker, loop, topic, ordered, batch
):
    for number in range(8):
        broker.send(topic, b"%d" % number, queue_id=number % 2)

    async def scenario():
        seen, begun = [], anyio.Event()

        async def hang(_):
            begun.set()
            await anyio.sleep_forever()

        async def handle(messages):
            found = messages if batch > 1 else [messages]
            seen.extend((each.queue.queue_id, each.queue_offset) for each in found)
            assert {each.attempt for each in found} == {1}
            if len(seen) == 8:
                it.stop()

        async with Consumer(
            broker.name_server, f"g-{topic}", topic, start="first", ordered=ordered
        ) as it:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: it.run(hang, concurrency=3, batch=batch))
                await begun.wait()
                tasks.cancel_scope.cancel()
            await it.run(handle, batch=batch)
        assert len(set(seen)) == 8
        for queue in range(2):
            offsets = [offset for each, offset in seen if each == queue]
            assert offsets == [0, 1, 2, 3] or not ordered

    loop(scenario)


def test_a_list_that_was_not_handed_out_comes_again(broker, loop, topic):
    for number in range(3):
        broker.send(topic, b"%d" % number, queue_id=0)

    async def scenario():
        async with Consumer(
            broker.name_server, f"g-{topic}", topic, start="first"
        ) as it:
            with anyio.move_on_after(0.2):
                await anext(it.batches(9, max_wait_ms=60_000))
            found = [await anext(it) for _ in range(3)]
            assert [each.queue_offset for each in found] == [0, 1, 2]

    loop(scenario)


def test_a_handler_that_blocks_the_loop_loses_nothing(broker, loop, topic):
    for number in range(4):
        broker.send(topic, b"%d" % number)

    async def scenario():
        seen = []

        def handle(message):
            time.sleep(0.05)
            seen.append(message.body)
            if len(seen) == 4:
                it.stop()

        async with Consumer(
            broker.name_server, f"g-{topic}", topic, start="first"
        ) as it:
            await it.run(handle)
        assert sorted(seen) == [b"0", b"1", b"2", b"3"]

    loop(scenario)


def test_two_clients_with_one_id_lose_nothing(broker, loop, topic):
    """Each believes that it is alone: both get all queues, and all messages."""

    async def scenario():
        async with (
            Client(broker.name_server, client_id="twin") as one,
            Client(broker.name_server, client_id="twin") as two,
            Producer(one) as producer,
            Consumer(one, f"g-{topic}", topic, start="first") as first,
            Consumer(two, f"g-{topic}", topic, start="first") as second,
        ):
            await producer.send_many([Message(topic, b"%d" % n) for n in range(8)])
            seen = [
                {(await anext(it)).body for _ in range(8)} for it in (first, second)
            ]
            assert len(seen[0]) == len(seen[1]) == 8

    loop(scenario)


@pytest.mark.parametrize("jump_s", [-3_600, 3_600, -86_400 * 40])
def test_a_clock_that_jumps(broker, loop, topic, monkeypatch, jump_s):
    real, jump = time.time_ns, [0]
    monkeypatch.setattr(time, "time_ns", lambda: real() + jump[0])

    async def scenario():
        ids = set()
        async with (
            Producer(broker.name_server) as producer,
            Consumer(broker.name_server, f"g-{topic}", topic, start="first") as it,
        ):
            for number in range(6):
                if number == 3:
                    jump[0] = jump_s * 1_000_000_000
                result = await producer.send(Message(topic, b"%d" % number))
                ids.add(result.msg_id)
                assert (await anext(it)).msg_id == result.msg_id
        assert len(ids) == 6

    loop(scenario)


@pytest.mark.slow
def test_a_broker_that_stops_and_comes_back(loop, tmp_path):
    """What was acknowledged arrives; the iterator never sees a connection."""
    settings = {
        "listenPort": str(free_port()),
        "rmq.namesrv.listenPort": str(free_port()),
    }
    address = f"127.0.0.1:{settings['rmq.namesrv.listenPort']}"
    running = BrokerThread(tmp_path, settings).__enter__()
    running.create_topic("comes-back", 2)

    async def scenario():
        nonlocal running
        stored, seen = set(), set()
        async with (
            Producer(address, timeout_ms=500) as producer,
            Consumer(address, "g", "comes-back", start="first") as consumer,
            anyio.create_task_group() as tasks,
        ):

            async def send():
                for number in itertools.count():
                    try:
                        await producer.send(Message("comes-back", b"%d" % number))
                    except (SendFailed, NoRoute):
                        await anyio.sleep(0.05)
                        continue
                    stored.add(b"%d" % number)
                    await anyio.sleep(0.002)

            async def receive():
                async for message in consumer:
                    seen.add(message.body)

            tasks.start_soon(send)
            tasks.start_soon(receive)
            for _ in range(2):
                await anyio.sleep(0.2)
                await anyio.to_thread.run_sync(running.__exit__)
                running = BrokerThread(tmp_path, settings)
                await anyio.to_thread.run_sync(running.__enter__)
                count = len(stored)
                while len(stored) < count + 20:  # noqa: ASYNC110 - a test
                    await anyio.sleep(0.02)
            while not stored <= seen:  # noqa: ASYNC110 - a test
                await anyio.sleep(0.02)
            tasks.cancel_scope.cancel()
        assert len(stored) > 40

    try:
        loop(scenario)
    finally:
        running.__exit__()


class Liar(threading.Thread):
    """A server that treats each request as `answer` says; it ends with its socket."""

    def __init__(self, answer):
        super().__init__(daemon=True)
        self._answer = answer
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._socket.getsockname()[1]}"
        self._open = []
        self.start()

    def run(self):
        with self._socket:
            while True:
                try:
                    peer, _ = self._socket.accept()
                except OSError:
                    return
                self._open.append(peer)
                threading.Thread(target=self._serve, args=[peer], daemon=True).start()

    def _serve(self, peer):
        decoder = FrameDecoder()
        try:
            while data := peer.recv(65_536):
                for request in decoder.feed(data):
                    peer.sendall(self._answer(request))
        except OSError:
            pass

    def close(self):
        self._socket.shutdown(socket.SHUT_RDWR)
        for each in self._open:
            each.close()


@pytest.mark.parametrize(
    "answer",
    [
        lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n",
        lambda _: b"\x7f\xff\xff\xff\0\0\0\0",
        lambda request: encode(
            Command(0, {}, b"no JSON", flag=1, opaque=request.opaque)
        ),
        lambda request: encode(
            Command(17, remark="none", flag=1, opaque=request.opaque)
        ),
    ],
    ids=["web server", "2 GiB", "no JSON", "unknown topic"],
)
def test_a_name_server_that_lies(loop, answer):
    liar = Liar(answer)

    async def scenario():
        async with Producer(liar.address) as producer:
            with pytest.raises((NoRoute, NameServerUnreachable), match=liar.address):
                await producer.send(Message("T", b"x"))

    try:
        loop(scenario)
    finally:
        liar.close()


ROUTE = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"%s"},"brokerName":"b","cluster":"c"}],'
    b'"queueDatas":[{"brokerName":"b","perm":6,"readQueueNums":1,"writeQueueNums":1}]}'
)


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["silent", "half", "foreign", "doubled", "late"])
def test_a_broker_that_answers_badly(loop, behaviour):
    def answer(request):
        if request.code == 105:
            body = ROUTE % liar.address.encode()
            return encode(Command(0, {}, body, flag=1, opaque=request.opaque))
        if request.code != 310 or behaviour == "silent":
            return b""
        fields = {"msgId": "7F" * 16, "queueId": "0", "queueOffset": "1"}
        good = encode(Command(0, fields, flag=1, opaque=request.opaque))
        foreign = encode(Command(0, fields, flag=1, opaque=request.opaque + 9_999))
        if behaviour == "late":
            time.sleep(0.3)  # in a thread of the broker
            return good
        return {"half": good[:9], "foreign": foreign, "doubled": good * 2}[behaviour]

    liar = Liar(answer)

    async def scenario():
        async with Producer(liar.address, timeout_ms=200) as producer:
            for _ in range(3):
                if behaviour == "doubled":
                    await producer.send(Message("T", b"x"))
                    continue
                with pytest.raises(SendTimeout) as caught:
                    await producer.send(Message("T", b"x"))
                assert caught.value.may_be_stored
            (connection,) = producer.client.connections.values()
            assert connection.codec.pending_count == 0

    try:
        loop(scenario)
    finally:
        liar.close()


def test_a_name_server_that_leads_back_to_itself(loop):
    def answer(request):
        found = Command(3, remark="I am no broker", flag=1, opaque=request.opaque)
        if request.code == 105:
            body = ROUTE % liar.address.encode()
            found = Command(0, {}, body, flag=1, opaque=request.opaque)
        return encode(found)

    liar = Liar(answer)

    async def scenario():
        async with Producer(liar.address) as producer:
            with pytest.raises(SendRefused, match="I am no broker"):
                await producer.send(Message("T", b"x"))

    try:
        loop(scenario)
    finally:
        liar.close()


def test_a_child_is_told_and_the_parent_goes_on(broker, topic):
    async def scenario():
        async with Producer(broker.name_server) as producer:
            await producer.send(Message(topic, b"before"))
            reader, writer = os.pipe()
            child = os.fork()
            if child == 0:
                try:
                    producer.client.check_open()
                except ClientForked as error:
                    os.write(writer, str(error).encode())
                finally:
                    os._exit(0)
            os.waitpid(child, 0)  # noqa: ASYNC222 - it has ended
            assert b"post_fork" in os.read(reader, 1_000)
            os.close(reader)
            os.close(writer)
            await producer.send(Message(topic, b"after"))

    asyncio.run(scenario())
    assert {each.body for each in broker.messages(topic)} == {b"before", b"after"}
