"""Link: the connection between a slave and its master, plain or with TLS.

Both ends have a non-blocking socket of Python, and `ssl` encrypts on this socket. So a
connection needs one descriptor, no further task and no further copy. A frame leaves in
records of RECORD_SIZE, and one call receives all records that have arrived.
"""

import socket
import ssl
from contextlib import suppress
from types import TracebackType
from typing import Protocol, Self

import trio

from rmq.cluster.wire import Handshake, LineageReader, encode_handshake
from rmq.core.address import Address, is_address
from rmq.core.errors import ConnectFailed, RemoteProtocolError
from rmq.core.threads import in_thread

CONNECT_TIMEOUT_S = 5.0
"""Time limit of a connection attempt, and of the answer to a handshake."""

RECEIVE_SIZE = 1 << 14
RECORD_SIZE = 1 << 14
NOTHING = memoryview(b"")

_IS_FULL = (BlockingIOError, ssl.SSLWantWriteError, ssl.SSLWantReadError)


class Link:
    """An end of a connection, which owns the socket."""

    def __init__(self, connected: socket.socket) -> None:
        """`connected` does not block; an `ssl.SSLSocket` encrypts."""
        self.socket = connected
        self._is_tls = isinstance(connected, ssl.SSLSocket)

    async def shake_hands(self) -> None:
        """Make the TLS handshake, its steps in a worker thread; OSError if it fails."""
        assert isinstance(self.socket, ssl.SSLSocket)
        while True:
            try:
                await in_thread(self.socket.do_handshake)
            except ssl.SSLWantReadError:
                await trio.lowlevel.wait_readable(self.socket)
            except ssl.SSLWantWriteError:
                await trio.lowlevel.wait_writable(self.socket)
            else:
                return

    async def receive_into(self, buffer: memoryview) -> int:
        """Wait for bytes, and receive all bytes that have arrived; 0 at the end."""
        await trio.lowlevel.checkpoint()
        while (count := self._receive_now(buffer)) is None:
            await trio.lowlevel.wait_readable(self.socket)
        return count

    async def receive_some(self, limit: int) -> bytes:
        """Wait for bytes, and return up to `limit`; none at the end."""
        buffer = memoryview(bytearray(limit))
        return bytes(buffer[: await self.receive_into(buffer)])

    def _receive_now(self, buffer: memoryview) -> int | None:
        """Receive the bytes that have arrived; 0 at the end, None if there are no
        bytes.
        """
        try:
            count = self.socket.recv_into(buffer)
        except _IS_FULL:
            return None
        with suppress(*_IS_FULL):
            while self._is_tls and 0 < count < len(buffer):
                more = self.socket.recv_into(buffer[count:])
                if not more:
                    break
                count += more
        return count

    async def send_all(self, data: bytes) -> None:
        """Send all bytes; wait for room in the socket."""
        while data := data[self.send_now(data) :]:
            await trio.lowlevel.wait_writable(self.socket)

    def send_now(self, head: bytes, body: memoryview = NOTHING) -> int:
        """Send bytes of both while the socket accepts them; return their number.

        With TLS the bytes that were not taken must be the first of the next call.
        """
        try:
            if not self._is_tls:
                return self.socket.sendmsg([head, body])
            return self._send_records(head, body)
        except _IS_FULL:
            return 0

    def _send_records(self, head: bytes, body: memoryview) -> int:
        """Send record after record; the first one has the head."""
        first = head + body[: max(0, RECORD_SIZE - len(head))]
        sent = self.socket.send(first)
        if sent < len(first):
            return sent
        with suppress(*_IS_FULL):
            while sent < len(head) + len(body):
                at = sent - len(head)
                sent += self.socket.send(body[at : at + RECORD_SIZE])
        return sent

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()

    async def __aenter__(self) -> Self:
        """Return itself; the end of the block closes it."""
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the socket."""
        self.close()


class Encryption(Protocol):
    """Encrypts new connections; `LinkTls` does."""

    async def encrypt(self, plain: socket.socket) -> Link:
        """Make the handshake with a master; OSError with the reason if it fails."""


async def connect(address: str, tls: Encryption | None) -> Link:
    """Connect to the HA address of a master; OSError with the reason if it fails.

    ConnectFailed if the address is not valid, or after CONNECT_TIMEOUT_S.
    """
    if not is_address(address):
        raise ConnectFailed("the master's HA address is not host:port")
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        stream = await trio.open_tcp_stream(*Address.parse(address))
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain = socket.socket(fileno=stream.socket.detach())
        plain.setblocking(False)
        return Link(plain) if tls is None else await tls.encrypt(plain)
    raise ConnectFailed(
        f"the master accepted no connection within {CONNECT_TIMEOUT_S:g} s"
    )


async def send_handshake(link: Link, own: Handshake) -> LineageReader:
    """Send the handshake in a group with a controller; return the answer.

    ConnectFailed if the answer is missing or wrong.
    """
    reader = LineageReader()
    await link.send_all(encode_handshake(own))
    with trio.move_on_after(CONNECT_TIMEOUT_S):
        while data := await link.receive_some(RECEIVE_SIZE):
            try:
                if reader.feed(data):
                    return reader
            except RemoteProtocolError as error:
                raise ConnectFailed(f"it sent {error}") from error
        raise ConnectFailed("the master closed the connection without an answer")
    raise ConnectFailed(
        "the master does not answer: does it have enableControllerMode=true, too?"
    )
