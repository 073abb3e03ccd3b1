"""Listener: binds a port and accepts its connections, a few in a turn.

An accepted connection goes to the `Sniffer`, which costs no task. The loop accepts
at most ACCEPTS_PER_TURN connections before other tasks run, so that a flood of new
connections takes turns with open connections. Without a free descriptor it evicts the
connection that has been silent longest; if there is none, it pauses.
"""

import errno
import logging
import socket

import trio

from rmq.core.address import Address
from rmq.core.errors import ConfigError
from rmq.core.logs import SparseLog
from rmq.remoting.sniffer import Sniffer, plain_address

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

BACKLOG = 1024
BACK_OFF_S = 0.1
ACCEPTS_PER_TURN = 4
"""Maximum number of accepts before other tasks run: about 0.2 ms."""

_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_ITS_OWN_END = (errno.ECONNABORTED, errno.EPROTO)


async def open_listener(host: str, port: int, key: str = "listenPort") -> socket.socket:
    """Bind and listen; ConfigError names an address that is not free, and its key."""
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
                f"another {key} (0 takes any free port)"
            ) from error
        raise ConfigError(
            f"cannot listen on {Address(host, port)}: {error.strerror}"
        ) from error
    plain = socket.socket(fileno=listening.detach())
    plain.setblocking(False)
    return plain


async def accept_forever(listening: socket.socket, sniffer: Sniffer) -> None:
    """Accept until cancelled."""
    while True:
        await trio.lowlevel.wait_readable(listening)
        if not _accept_some(listening, sniffer):
            await trio.sleep(BACK_OFF_S)


def _accept_some(listening: socket.socket, sniffer: Sniffer) -> bool:
    """Accept a few connections; False if there is no free descriptor."""
    for _ in range(ACCEPTS_PER_TURN):
        try:
            accepted, peer = listening.accept()
            accepted.setblocking(False)
        except BlockingIOError:
            break
        except OSError as error:
            if error.errno in _ITS_OWN_END:
                continue
            if error.errno not in _TRANSIENT:
                raise
            if not sniffer.admission.evict():
                logger.error(
                    "cannot accept a connection: %s; trying again in %s s",
                    error.strerror,
                    BACK_OFF_S,
                )
                return False
        else:
            sniffer.add(accepted, plain_address(peer))
    return True
