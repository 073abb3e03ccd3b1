"""link: connects a slave to its master, and sends the handshake."""

import socket
from typing import TYPE_CHECKING

import trio

from rmq.cluster.wire import Handshake, LineageReader, encode_handshake
from rmq.core.address import Address, is_address
from rmq.core.errors import ConnectFailed, RemoteProtocolError

if TYPE_CHECKING:
    from rmq.cluster.link_tls import LinkTls

CONNECT_TIMEOUT_S = 5.0
"""Time limit of a connection attempt, and of the answer to a handshake."""

RECEIVE_SIZE = 1 << 14


async def connect(
    address: str, tls: "LinkTls | None", nursery: trio.Nursery | None
) -> trio.SocketStream:
    """Connect to the HA address of a master; ConnectFailed if there is no connection.

    With `tls` a task of the nursery encrypts.
    """
    if not is_address(address):
        raise ConnectFailed("the master's HA address is not host:port")
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        stream = await trio.open_tcp_stream(*Address.parse(address))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is None:
            return stream
        assert nursery is not None, "run connects"
        return await tls.open_stream(stream, nursery, address)
    raise ConnectFailed(
        f"the master accepted no connection within {CONNECT_TIMEOUT_S:g} s"
    )


async def send_handshake(stream: trio.SocketStream, own: Handshake) -> LineageReader:
    """Send the handshake in a group with a controller; return the answer.

    ConnectFailed if the answer is missing or wrong.
    """
    reader = LineageReader()
    await stream.send_all(encode_handshake(own))
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        while data := await stream.receive_some(RECEIVE_SIZE):
            try:
                if reader.feed(bytes(data)):
                    return reader
            except RemoteProtocolError as error:
                raise ConnectFailed(f"it sent {error}") from error
        raise ConnectFailed("the master closed the connection instead of an answer")
    raise ConnectFailed(
        "the master does not answer: does it have enableControllerMode=true, too?"
    )
