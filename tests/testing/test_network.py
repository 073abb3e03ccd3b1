"""The memory network: packets take time, arrive in some order, or not at all."""

import contextlib

import pytest
import trio

from rmq.errors import InvokeTimeout, PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.remoting.channel import Channel
from rmq.testing import MemoryNetwork


async def echo(stream):
    """A server that answers requests with their own bodies."""
    decoder = FrameDecoder()
    with contextlib.suppress(trio.BrokenResourceError):
        while data := await stream.receive_some():
            for command in decoder.feed(data):
                await stream.send_all(encode(command.reply(body=command.body)))


@pytest.fixture
async def open_channel(nursery):
    """Return a function that connects a channel to an echo over a network."""

    async def make(network):
        listener = network.listen("b:1")
        nursery.start_soon(trio.serve_listeners, echo, [listener])
        channel = Channel("b:1", await network.connect("b:1"))
        await nursery.start(channel.run)
        return channel

    return make


async def test_a_request_takes_the_time_of_both_ways(open_channel, autojump_clock):
    channel = await open_channel(MemoryNetwork(delay_s=(2.0, 2.0)))
    began = trio.current_time()
    answer = await channel.invoke(Command.request(7, body=b"x"), 10_000)
    assert answer.body == b"x"
    assert trio.current_time() - began == pytest.approx(4.0)


async def test_an_answer_that_is_late_is_not_taken(open_channel, autojump_clock):
    channel = await open_channel(MemoryNetwork(delay_s=(2.0, 2.0)))
    with pytest.raises(InvokeTimeout):
        await channel.invoke(Command.request(7, body=b"late"), 3_000)
    answer = await channel.invoke(Command.request(7, body=b"next"), 10_000)
    assert answer.body == b"next"


async def test_a_cut_ends_whoever_waits_and_healing_lets_in(
    open_channel, autojump_clock, nursery
):
    network = MemoryNetwork(delay_s=(1.0, 1.0))
    channel = await open_channel(network)
    cut_at = trio.current_time() + 1.5

    async def cut():
        await trio.sleep_until(cut_at)
        network.cut("b:1")

    nursery.start_soon(cut)
    with pytest.raises(PeerClosed):
        await channel.invoke(Command.request(7), 10_000)
    assert trio.current_time() == pytest.approx(cut_at)
    with pytest.raises(ConnectionRefusedError):
        await network.connect("b:1")
    network.heal("b:1")
    stream = await network.connect("b:1")
    await stream.send_all(encode(Command(7, body=b"again")))
    assert b"again" in await stream.receive_some()


@pytest.mark.parametrize("seed", range(5))
async def test_answers_find_their_requests_in_any_order(
    open_channel, autojump_clock, nursery, seed
):
    network = MemoryNetwork(seed, delay_s=(0.1, 5.0), reorder=True)
    channel = await open_channel(network)
    order = []

    async def ask(number):
        body = str(number).encode()
        answer = await channel.invoke(Command.request(7, body=body), 60_000)
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
