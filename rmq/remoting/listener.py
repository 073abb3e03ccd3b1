"""Accepts connections: backs off without descriptors, and reads the first byte.

The first byte decides: a PROXY header names the real client and is removed, 0x16 is a
TLS handshake, anything else is a frame. The bytes after it stay in the socket for the
part that serves it. A PROXY header is trusted only from the addresses of balancers.
"""

import errno
import ipaddress
import logging
import math
import socket
from collections.abc import Callable
from typing import NamedTuple

import trio

from rmq.errors import ConfigError, RemoteProtocolError
from rmq.logs import Foreign, SparseLog, caused_by
from rmq.remoting import proxy_header
from rmq.remoting.admission import Admission, Guest

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

BACKLOG = 1024
BACK_OFF_S = 0.1
PEEK_PAUSE_S = 0.01
PEEK_LIMIT_S = 3
"""PROXY headers normally arrive whole. A peer that dribbles one is polled rarely."""

TLS_FIRST_BYTE = 0x16
_TRANSIENT = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Address = tuple[str, int]
Handover = Callable[["Sniffed"], None]


class Sniffed(NamedTuple):
    """An accepted connection, and what its first bytes show.

    `remote` is the address in a PROXY header, `peer` that of the real peer.
    """

    plain: socket.socket
    guest: Guest
    remote: Address
    local: Address
    peer: Address
    is_tls: bool


async def open_listener(host: str, port: int) -> trio.SocketListener:
    """Bind and listen; ConfigError names an address that is not free."""
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


class Balancers:
    """Addresses whose PROXY headers are trusted; `text` as in rmq.proxyProtocolFrom.

    ConfigError if it is not a list of addresses and ranges.
    """

    def __init__(self, text: str) -> None:
        self._networks = []
        for part in filter(None, (part.strip() for part in text.split(","))):
            try:
                self._networks.append(ipaddress.ip_network(part, strict=False))
            except ValueError:
                raise ConfigError(
                    f"rmq.proxyProtocolFrom={text}: {part} is neither an address nor a "
                    "range such as 10.0.0.0/8"
                ) from None

    def has(self, address: str) -> bool:
        """Return whether this address belongs to a balancer."""
        known = ipaddress.ip_address(address.partition("%")[0])
        return any(known in network for network in self._networks)


class Doorway(NamedTuple):
    """The parts that decide about a connection before its first frame."""

    admission: Admission
    balancers: Balancers
    handover: Handover
    sniff_timeout_s: float


async def accept_forever(listener: trio.SocketListener, doorway: Doorway) -> None:
    """Accept until cancelled; each connection is sniffed in a task of its own.

    Without a descriptor for one more, evict the connection that has been silent
    longest; if there is none, wait for BACK_OFF_S.
    """
    async with trio.open_nursery() as nursery:
        while True:
            try:
                accepted, _ = await listener.socket.accept()
            except OSError as error:
                if error.errno in _TRANSIENT:
                    if doorway.admission.evict():
                        continue
                    logger.error(
                        "cannot accept a connection: %s; trying again in %s s",
                        error.strerror,
                        BACK_OFF_S,
                    )
                    await trio.sleep(BACK_OFF_S)
                elif error.errno not in (errno.ECONNABORTED, errno.EPROTO):
                    raise
                continue
            _admit(accepted, doorway, nursery)


def _admit(
    accepted: trio.socket.SocketType, doorway: Doorway, nursery: trio.Nursery
) -> None:
    """Sniff a connection if there is room for it."""
    try:
        peer, local = _address(accepted.getpeername()), _address(accepted.getsockname())
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except OSError as error:
        logger.debug("a connection broke when it was accepted: %s", error)
        accepted.close()
        return
    guest = doorway.admission.admit(peer[0], accepted.close)
    if guest is None:
        logger.warning(
            "refusing %s: no room for its connection (rmq.maxConnections=%d, "
            "rmq.maxConnectionsPerAddress=%d)",
            peer[0],
            doorway.admission.limit,
            doorway.admission.limit_per_address,
            extra=caused_by(peer[0]),
        )
        accepted.close()
        return
    nursery.start_soon(_sniff, accepted, guest, peer, local, doorway)


async def _sniff(
    accepted: trio.socket.SocketType,
    guest: Guest,
    peer: Address,
    local: Address,
    doorway: Doorway,
) -> None:
    """Find out the peer's protocol, then hand its socket over."""
    try:
        with trio.move_on_after(doorway.sniff_timeout_s):
            source, is_tls = await _first_bytes(accepted, guest, doorway)
            plain = _detached(accepted)
            doorway.handover(Sniffed(plain, guest, source or peer, local, peer, is_tls))
            return
        logger.info(
            "%s sent nothing for %s s",
            peer[0],
            doorway.sniff_timeout_s,
            extra=caused_by(peer[0]),
        )
    except RemoteProtocolError as error:
        logger.warning(
            "closing %s: %s", peer[0], Foreign(error), extra=caused_by(peer[0])
        )
    except trio.ClosedResourceError:
        return  # it was evicted for another
    except OSError as error:
        logger.debug("a connection broke before its first byte: %s", error)
    doorway.admission.leave(guest)
    accepted.close()


async def _first_bytes(
    accepted: trio.socket.SocketType, guest: Guest, doorway: Doorway
) -> tuple[Address | None, bool]:
    """Read the first bytes: return a PROXY header's source, and whether TLS follows.

    At most one header is removed: a second one would come from the client itself.
    """
    source, is_first = None, True
    pause_s, end = PEEK_PAUSE_S, math.inf
    while True:
        data = await accepted.recv(proxy_header.PEEK_SIZE, socket.MSG_PEEK)
        if not data:
            raise ConnectionAbortedError("it closed before its first byte")
        if data[0] == TLS_FIRST_BYTE:
            return source, True
        if not (is_first and proxy_header.may_begin(data)):
            return source, False
        if not doorway.balancers.has(guest.address):
            raise RemoteProtocolError(
                "it sent a PROXY header and is no balancer: add its address to "
                "rmq.proxyProtocolFrom if it is one"
            )
        header = proxy_header.parse(data)
        if header is not None:
            await accepted.recv(header.size)
            source, is_first = header.source, False
            if source and not doorway.admission.rename(guest, source[0]):
                raise RemoteProtocolError(f"{source[0]} has too many connections")
            continue
        end = min(end, trio.current_time() + PEEK_LIMIT_S)
        if trio.current_time() >= end:
            raise RemoteProtocolError(f"its PROXY header took over {PEEK_LIMIT_S} s")
        await trio.sleep(pause_s)
        pause_s *= 2


def _address(name: tuple[str, int]) -> Address:
    """Return host and port; an IPv4 address over IPv6 in its IPv4 form."""
    return name[0].removeprefix("::ffff:"), name[1]


def _detached(accepted: trio.socket.SocketType) -> socket.socket:
    """Take the socket away from trio.

    ClosedResourceError if another took its room: trio lets others run between the
    arrival of the first bytes and the return of `recv`.
    """
    if accepted.fileno() < 0:
        raise trio.ClosedResourceError("another took its room")
    plain = socket.socket(fileno=accepted.detach())
    plain.setblocking(False)
    return plain
