"""The memory network: packets take time, arrive in some order, or not at all."""

import contextlib

import pytest
import trio

from rmq.core.errors import PeerClosed
from rmq.outgoing.connection import NO_LIMIT_MS, Connection
from rmq.outgoing.wire_trio import TrioWaiter, TrioWire
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.testing import MemoryNetwork


async def echo(stream):
    """A server that answers requests with their own bodies."""
    decoder = FrameDecoder()
    with contextlib.suppress(trio.BrokenResourceError):
        while data := await stream.receive_some():
            for command in decoder.feed(data):
                await stream.send_all(encode(command.reply(body=command.body)))


@pytest.fixture
async def connect(nursery):
    """Return a function that connects to an echo over a network."""

    async def make(network):
        listener = network.listen("b:1")
        nursery.start_soon(trio.serve_listeners, echo, [listener])
        connection = Connection("b:1", TrioWaiter, *[lambda *_: None] * 3)
        stream = await network.connect("b:1")
        connection.wire = TrioWire(stream, connection, ("b", 1))
        nursery.start_soon(connection.wire.run)
        return connection

    return make


async def test_a_request_takes_the_time_of_both_ways(connect, autojump_clock):
    connection = await connect(MemoryNetwork(delay_s=(2.0, 2.0)))
    began = trio.current_time()
    answer = await connection.request(Command.request(7, body=b"x"), NO_LIMIT_MS)
    assert answer.body == b"x"
    assert trio.current_time() - began == pytest.approx(4.0)


async def test_an_answer_that_is_late_is_not_taken(connect, autojump_clock):
    connection = await connect(MemoryNetwork(delay_s=(2.0, 2.0)))
    with trio.move_on_after(3) as scope:
        await connection.request(Command.request(7, body=b"late"), NO_LIMIT_MS)
    assert scope.cancelled_caught
    answer = await connection.request(Command.request(7, body=b"next"), NO_LIMIT_MS)
    assert answer.body == b"next"


async def test_a_cut_ends_whoever_waits_and_healing_lets_in(
    connect, autojump_clock, nursery
):
    network = MemoryNetwork(delay_s=(1.0, 1.0))
    connection = await connect(network)
    cut_at = trio.current_time() + 1.5

    async def cut():
        await trio.sleep_until(cut_at)
        network.isolate("b:1")

    nursery.start_soon(cut)
    with pytest.raises(PeerClosed):
        await connection.request(Command.request(7), NO_LIMIT_MS)
    assert trio.current_time() == pytest.approx(cut_at)
    with pytest.raises(ConnectionRefusedError):
        await network.connect("b:1")
    network.heal("b:1")
    stream = await network.connect("b:1")
    await stream.send_all(encode(Command(7, body=b"again")))
    assert b"again" in await stream.receive_some()


@pytest.mark.parametrize("seed", range(5))
async def test_answers_find_their_requests_in_any_order(
    connect, autojump_clock, nursery, seed
):
    network = MemoryNetwork(seed, delay_s=(0.1, 5.0), reorder=True)
    connection = await connect(network)
    order = []

    async def ask(number):
        body = str(number).encode()
        answer = await connection.request(Command.request(7, body=body), NO_LIMIT_MS)
        assert answer.body == body
        order.append(number)

    async with trio.open_nursery() as asking:
        for number in range(20):
            asking.start_soon(ask, number)
    assert sorted(order) == list(range(20))
    assert order != sorted(order)


async def test_without_reorder_bytes_stay_a_stream(autojump_clock):
    network = MemoryNetwork(3, delay_s=(0.0, 9.0))
    listener = network.listen("b:1")
    near = await network.connect("b:1")
    far = await listener.accept()
    for number in range(50):
        await near.send_all(bytes([number]))
    await near.send_eof()
    received = b""
    while data := await far.receive_some():
        received += data
    assert received == bytes(range(50))


async def test_a_stream_that_nobody_reads_stops_its_sender(autojump_clock):
    network = MemoryNetwork()
    network.listen("b:1")
    near = await network.connect("b:1")
    with trio.move_on_after(5) as scope:
        while True:
            await near.send_all(b"x")
    assert scope.cancelled_caught
