"""The connection of a slave: equal bytes plain and with TLS, through small sockets."""

import os
import random
import socket

import pytest
import trio

from rmq.cluster.link import Link
from tests.fastpath.tls import client_context, server_context


@pytest.fixture(params=["plain", "tls"])
async def links(request):
    """Both ends of a connection whose sockets take little."""
    near, far = socket.socketpair()
    for each in (near, far):
        each.setblocking(False)
        each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
    if request.param == "plain":
        ends = [Link(near), Link(far)]
    else:
        ends = [
            Link(context.wrap_socket(each, server_side=is_server,
                                     do_handshake_on_connect=False))
            for each, context, is_server in (
                (near, client_context(), False), (far, server_context(), True),
            )
        ]  # fmt: skip
        async with trio.open_nursery() as nursery:
            for each in ends:
                nursery.start_soon(each.shake_hands)
    yield ends
    for each in ends:
        each.close()


@pytest.mark.parametrize("size", [0, 1, 16_000, 16_384, 300_000])
async def test_heads_and_bodies_arrive_as_they_were_sent(links, size):
    """A sender gives the rest again, as a session does."""
    sender, receiver = links
    head, body = b"a head", random.Random(size).randbytes(size)
    wanted, blocked = head + body, 0

    async def send():
        nonlocal head, blocked
        rest = memoryview(body)
        while head or rest:
            sent = sender.send_now(head, rest)
            of_head = min(sent, len(head))
            head, rest = head[of_head:], rest[sent - of_head :]
            if not sent:
                blocked += 1
                await trio.lowlevel.wait_writable(sender.socket)

    received = b""
    with trio.fail_after(20):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(send)
            while len(received) < len(wanted):
                received += await receiver.receive_some(100_000)
    assert received == wanted
    assert blocked or size < 300_000


async def test_all_records_that_came_are_received_at_once(links):
    sender, receiver = links
    for number in range(5):
        assert sender.send_now(bytes([number])) == 1
    assert await receiver.receive_some(100) == bytes(range(5))


async def test_the_end_is_received(links):
    sender, receiver = links
    await sender.send_all(b"last")
    sender.close()
    assert await receiver.receive_some(100) == b"last"
    assert await receiver.receive_some(100) == b""


async def test_a_connection_has_one_descriptor(links):
    before = len(os.listdir("/proc/self/fd"))
    for each in links:
        each.close()
    assert before - len(os.listdir("/proc/self/fd")) == 2
