"""Connections that end are freed at once, without a garbage collection.

A collection follows a number of new objects, however large they are. So cycles of
connections that do nothing could fill the memory.
"""

import gc
import ssl
from contextlib import contextmanager, suppress

import pytest
import trio

from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.testing.broker import running_node
from tests.fastpath.tls import client_context
from tests.waiting import until

COUNT = 20
ROUTE = encode(Command(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"}))
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@contextmanager
def without_collections():
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def garbage_of_the_server():
    """Return the classes of the server whose objects only a collection frees."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return {
            type(each).__qualname__
            for each in gc.garbage
            if type(each).__module__.startswith("rmq.")
            or (isinstance(each, ssl.SSLObject) and each.server_side)
        }
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


def first_hello():
    outgoing = ssl.MemoryBIO()
    client = client_context().wrap_bio(ssl.MemoryBIO(), outgoing)
    with suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


async def say_nothing(_):
    pass


async def ask(stream):
    await stream.send_all(ROUTE)
    await stream.receive_some()


async def begin_a_handshake(stream):
    await stream.send_all(first_hello())
    await stream.receive_some()


async def shake_hands(stream):
    encrypted = trio.SSLStream(stream, client_context())
    await encrypted.send_all(ROUTE)
    await encrypted.receive_some()


async def begin_http2(stream):
    await stream.send_all(HTTP2)
    await stream.receive_some()


async def send_a_wrong_header(stream):
    await stream.send_all(b"PROXY TCP4 nowhere\r\n")
    with trio.fail_after(20), suppress(trio.BrokenResourceError):
        assert not await stream.receive_some()


@pytest.mark.parametrize(
    "speak",
    [
        say_nothing,
        ask,
        begin_a_handshake,
        shake_hands,
        begin_http2,
        send_a_wrong_header,
    ],
)
async def test_nothing_is_left_of_a_connection(tmp_path, speak):
    async with running_node(tmp_path) as node:

        async def connect_and_leave():
            stream = await trio.open_tcp_stream(host, int(port))
            await speak(stream)
            await trio.aclose_forcefully(stream)

        host, _, port = node.address.rpartition(":")
        before = node.server.statistics().admission.connections
        await connect_and_leave()  # what is imported and made by the first one stays
        with without_collections():
            for _ in range(COUNT):
                await connect_and_leave()
            await until(
                lambda: node.server.statistics().admission.connections == before
            )
            assert garbage_of_the_server() == set()
