"""LinkTls: TLS between the brokers of a group, by the certificates of the other ports.

A replica speaks first: the eight bytes of a report begin with 0, a TLS handshake with
0x16.  So one port takes both, which a group needs while its brokers are changed one by
one.  Java's brokers speak plain only.

Behind the handshake a task copies decrypted bytes, so that everybody else has a plain
socket; see `serve_decrypted`.
"""

import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import trio

from rmq.core.errors import ConfigError
from rmq.remoting.sniffer import TLS_FIRST_BYTE
from rmq.remoting.tls import (
    HANDSHAKE_TIMEOUT_S,
    TlsConfig,
    TlsMode,
    WatchedContext,
    client_context,
    serve_decrypted,
    server_context,
)

KEY = "rmq.haTls"


class LinkTls:
    """The two contexts of a broker: for its slaves, and for its master."""

    def __init__(self, mode: TlsMode, config: TlsConfig) -> None:
        """ConfigError without a certificate; `mode` is not `disabled`."""
        server, client = server_context(config), client_context(config, always=True)
        if server is None or client is None:
            raise ConfigError(
                f"{KEY}={mode}: set a certificate and its key with tls.server.certPath "
                "and tls.server.keyPath"
            )
        self.takes_plain = mode is TlsMode.permissive
        self._server: WatchedContext = server
        self._client: WatchedContext = client

    async def run(self) -> None:
        """Read the certificates again when they change, until cancelled."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._server.follow)
            nursery.start_soon(self._client.follow)

    async def starts_with_handshake(self, connected: socket.socket) -> bool | None:
        """Whether a peer begins with a handshake; None if it is silent."""
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            await trio.lowlevel.wait_readable(connected)
            first = connected.recv(1, socket.MSG_PEEK)
            return first[0] == TLS_FIRST_BYTE if first else None
        return None

    async def serve(
        self,
        connected: socket.socket,
        hand_over: Callable[[socket.socket], None],
        name: str,
    ) -> None:
        """Serve a peer that begins with a handshake, until the connection ends."""
        stream = trio.SSLStream(
            _to_stream(connected), self._server.context, server_side=True
        )
        await serve_decrypted(stream, hand_over, name)

    async def open_stream(
        self, plain: trio.SocketStream, nursery: trio.Nursery, name: str
    ) -> trio.SocketStream:
        """Return the decrypted end of a connection; a task of the nursery copies.

        OSError with the reason if there is no handshake.
        """
        stream = trio.SSLStream(plain, self._client.context)
        async with AsyncExitStack() as undo:
            undo.push_async_callback(trio.aclose_forcefully, stream)
            try:
                await stream.do_handshake()
            except trio.BrokenResourceError as error:
                raise OSError(f"no TLS handshake: {error.__cause__}") from error
            undo.pop_all()
        given, taken = trio.open_memory_channel[socket.socket](1)
        nursery.start_soon(serve_decrypted, stream, given.send_nowait, name)
        return _to_stream(await taken.receive())


def _to_stream(connected: socket.socket) -> trio.SocketStream:
    return trio.SocketStream(trio.socket.from_stdlib_socket(connected))
