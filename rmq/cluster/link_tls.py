"""LinkTls: TLS between the brokers of a group, by the certificates of the other ports.

A slave sends first: the eight bytes of a report begin with 0, a TLS handshake with
0x16. So one port accepts both. A group needs this while its brokers change to TLS one
by one. Java's brokers speak plain only.

After the handshake a task copies decrypted bytes, so all other code uses a plain
socket; see `serve_decrypted`.
"""

import logging
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack

import trio

from rmq.core.errors import ConfigError
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.remoting.handshakes import HANDSHAKE_TIMEOUT_S
from rmq.remoting.sniffer import TLS_FIRST_BYTE
from rmq.remoting.tls import (
    TlsConfig,
    TlsMode,
    WatchedContext,
    client_context,
    server_context,
)

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

KEY = "rmq.haTls"
CHUNK_SIZE = 65_536


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
        """Return a stream of decrypted bytes; a task of the nursery copies them.

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


async def serve_decrypted(
    stream: "trio.SSLStream[trio.SocketStream]",
    hand_over: Callable[[socket.socket], None],
    name: str,
) -> None:
    """Make the handshake, hand over the plain end, and copy bytes until one side ends.

    Neither side can fill memory: each direction holds one chunk besides the buffers of
    the sockets in between.
    """
    try:
        if not await _shake_hands(stream, name):
            return
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        inner = trio.SocketStream(trio.socket.from_stdlib_socket(ours))
        hand_over(theirs)
        async with inner, trio.open_nursery() as nursery:
            nursery.start_soon(_copy_bytes, inner, stream, nursery.cancel_scope)
            await _copy_bytes(stream, inner, nursery.cancel_scope)
    except* (trio.BrokenResourceError, trio.ClosedResourceError):
        logger.debug("the TLS connection of %s broke", name)
    except* OSError as errors:
        logger.error(
            "cannot serve the TLS connection of %s: %s",
            name,
            errors,
            extra=caused_by(name),
        )
    finally:
        await trio.aclose_forcefully(stream)


async def _shake_hands(stream: "trio.SSLStream[trio.SocketStream]", name: str) -> bool:
    try:
        with trio.fail_after(HANDSHAKE_TIMEOUT_S):
            await stream.do_handshake()
    except trio.TooSlowError:
        logger.warning(
            "closing %s: no TLS handshake in %s s",
            name,
            HANDSHAKE_TIMEOUT_S,
            extra=caused_by(name),
        )
    except trio.BrokenResourceError as error:
        logger.warning(
            "closing %s: TLS handshake: %s",
            name,
            Foreign(error.__cause__),
            extra=caused_by(name),
        )
    else:
        return True
    return False


async def _copy_bytes(
    source: trio.abc.Stream, target: trio.abc.Stream, end: trio.CancelScope
) -> None:
    while data := await source.receive_some(CHUNK_SIZE):
        await target.send_all(data)
    end.cancel()
