"""link: connects a slave to its master, and greets it."""

import socket
from typing import TYPE_CHECKING

import trio

from rmq.cluster.wire import Greeting, LineageReader, encode_greeting
from rmq.core.address import Address, is_address
from rmq.core.errors import ConnectFailed, RemoteProtocolError

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls

CONNECT_TIMEOUT_S = 5.0
"""Also of the answer to a greeting."""

RECEIVE_SIZE = 1 << 14


async def connect(
    address: str, tls: "LinkTls | None", nursery: trio.Nursery | None
) -> trio.SocketStream:
    """Connect to the HA address of a master; ConnectFailed if there is no connection.

    With `tls` a task of the nursery encrypts.
    """
    if not is_address(address):
        raise ConnectFailed("its HA address is no host:port")
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        stream = await trio.open_tcp_stream(*Address.parse(address))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return stream
        assert nursery is not None, "run connects"
        return await tls.open_stream(stream, nursery, address)
    raise ConnectFailed(f"it took no connection within {CONNECT_TIMEOUT_S:g} s")


async def greet(stream: trio.SocketStream, own: Greeting) -> LineageReader:
    """Greet the master of a group with a controller; return its answer.

    ConnectFailed if the answer is missing or wrong.
    """
    reader = LineageReader()
    await stream.send_all(encode_greeting(own))
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        while data := await stream.receive_some(RECEIVE_SIZE):
            try:
                if reader.feed(bytes(data)):
                    return reader
            except RemoteProtocolError as error:
                raise ConnectFailed(f"it sent {error}") from error
        raise ConnectFailed("it closed the connection instead of an answer")
    raise ConnectFailed("it does not answer: has it enableControllerMode=true, too?")
