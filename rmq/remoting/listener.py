"""Accepting connections: back off when descriptors run out, look at the first byte.

The first byte decides: a PROXY header names the real client and is taken off, 0x16 is a
TLS handshake (refused while no certificate is configured), anything else is a frame.
What follows stays in the socket for the reactor.
"""

import errno
import logging
import math
import socket
from collections.abc import Callable

import trio

from rmq.errors import ConfigError, RemoteProtocolError
from rmq.remoting import proxy_header
from rmq.remoting.sparse_log import SparseLog

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

BACKLOG = 1024
BACK_OFF_S = 0.1
PEEK_PAUSE_S = 0.01
PEEK_LIMIT_S = 3
"""A PROXY header comes in one piece; who sends it byte by byte is looked at seldom."""

TLS_FIRST_BYTE = 0x16
_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Address = tuple[str, int]
Handover = Callable[[socket.socket, Address, Address], None]


async def open_listener(host: str, port: int) -> trio.SocketListener:
    """Bind and listen; ConfigError says which address is not free."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = trio.socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        await listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRINUSE:
            raise ConfigError(
                f"port {port} on {host} is in use: stop the other process, or set "
                "another listenPort (0 takes any free port)"
            ) from error
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}"
        ) from error
    return trio.SocketListener(listening)


async def accept_forever(
    listener: trio.SocketListener, handover: Handover, sniff_timeout_s: float
) -> None:
    """Accept until cancelled; each connection is sniffed in a task of its own."""
    async with trio.open_nursery() as nursery:
        while True:
            try:
                accepted, _ = await listener.socket.accept()
            except OSError as error:
                if error.errno in _TRANSIENT:
                    logger.error(
                        "cannot accept a connection: %s; trying again in %s s",
                        error.strerror,
                        BACK_OFF_S,
                    )
                    await trio.sleep(BACK_OFF_S)
                elif error.errno not in (errno.ECONNABORTED, errno.EPROTO):
                    raise
                continue
            nursery.start_soon(_sniff, accepted, handover, sniff_timeout_s)


async def _sniff(
    accepted: trio.socket.SocketType, handover: Handover, timeout_s: float
) -> None:
    """Find out what the peer speaks, then hand its socket over."""
    try:
        remote, local = accepted.getpeername()[:2], accepted.getsockname()[:2]
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with trio.move_on_after(timeout_s):
            source = await _first_bytes(accepted)
            handover(_detached(accepted), source or remote, local)
            return
        logger.info("%s sent nothing for %s s", remote, timeout_s)
    except RemoteProtocolError as error:
        logger.warning("closing %s: %s", remote, error)
    except OSError:
        logger.debug("a connection broke before its first byte")
    accepted.close()


async def _first_bytes(accepted: trio.socket.SocketType) -> Address | None:
    """Look at the first bytes; take a PROXY header off and return its source."""
    pause_s, end = PEEK_PAUSE_S, math.inf
    while True:
        data = await accepted.recv(proxy_header.PEEK_SIZE, socket.MSG_PEEK)
        if not data:
            raise ConnectionAbortedError("it closed before its first byte")
        if data[0] == TLS_FIRST_BYTE:
            raise RemoteProtocolError(
                "it speaks TLS, but no certificate is configured here"
            )
        if not proxy_header.may_begin(data):
            return None
        header = proxy_header.parse(data)
        if header is not None:
            await accepted.recv(header.size)
            return header.source
        end = min(end, trio.current_time() + PEEK_LIMIT_S)
        if trio.current_time() >= end:
            raise RemoteProtocolError(f"its PROXY header took over {PEEK_LIMIT_S} s")
        await trio.sleep(pause_s)
        pause_s *= 2


def _detached(accepted: trio.socket.SocketType) -> socket.socket:
    plain = socket.socket(fileno=accepted.detach())
    plain.setblocking(False)
    return plain
