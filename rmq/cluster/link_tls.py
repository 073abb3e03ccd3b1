"""LinkTls: TLS between the brokers of a group, by the certificates of the other ports.

A slave sends first: the eight bytes of a report begin with 0, a TLS handshake with
0x16. So one port accepts both. A group needs this while its brokers change to TLS one
by one. Java's brokers speak plain only.
"""

import socket

import trio

from rmq.cluster.link import Link
from rmq.core.errors import ConfigError
from rmq.remoting.handshakes import HANDSHAKE_TIMEOUT_S
from rmq.remoting.sniffer import TLS_FIRST_BYTE
from rmq.remoting.tls import (
    TlsConfig,
    TlsMode,
    WatchedContext,
    client_context,
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

    async def accept(self, plain: socket.socket) -> Link:
        """Make the handshake with a slave; OSError with the reason if it fails."""
        with trio.move_on_after(HANDSHAKE_TIMEOUT_S):
            return await _encrypt(plain, self._server, is_server=True)
        raise OSError(f"no TLS handshake in {HANDSHAKE_TIMEOUT_S:g} s")

    async def encrypt(self, plain: socket.socket) -> Link:
        """Make the handshake with a master; OSError with the reason if it fails."""
        return await _encrypt(plain, self._client, is_server=False)


async def _encrypt(
    plain: socket.socket, context: WatchedContext, *, is_server: bool
) -> Link:
    """Return the encrypted connection, which owns the socket."""
    link = Link(
        context.context.wrap_socket(
            plain, server_side=is_server, do_handshake_on_connect=False
        )
    )
    is_encrypted = False
    try:
        await link.shake_hands()
        is_encrypted = True
    except OSError as error:
        raise OSError(f"no TLS handshake: {error}") from error
    finally:
        if not is_encrypted:
            link.close()
    return link
