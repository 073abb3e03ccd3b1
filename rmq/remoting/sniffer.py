"""Sniffer: finds out the protocol of accepted connections, without a task for each.

The first byte decides: a PROXY header names the real client and is removed, 0x16 is a
TLS handshake, anything else is a frame. The following bytes stay in the socket, for the
part that serves the connection. A PROXY header is trusted only from the addresses of
balancers.

All connections that wait for their first byte are in one epoll set, edge-triggered. The
sniffer inspects a connection when bytes arrive, at most LOOKS_PER_TURN connections
before other tasks run. Belongs to the trio thread.
"""

import ipaddress
import itertools
import logging
import math
import select
import socket
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import trio

from rmq.core.errors import BadValue, RemoteProtocolError
from rmq.core.logs import Foreign, SparseLog, caused_by
from rmq.remoting import http2, proxy_header
from rmq.remoting.admission import Admission, Admitted

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

LOOKS_PER_TURN = 4
"""Maximum number of connections that are inspected before other tasks run: about
0.2 ms.
"""

HEADER_LIMIT_S = 3
"""Time limit of a PROXY header, which normally arrives whole."""

TLS_FIRST_BYTE = 0x16
HTTP2_READ = 65_536
_EDGES = select.EPOLLIN | select.EPOLLRDHUP | select.EPOLLET

Address = tuple[str, int]


class Sniffed(NamedTuple):
    """An accepted connection, and the facts from its first bytes.

    `remote` is the address in a PROXY header, `peer` the address of the real peer.
    """

    plain: socket.socket
    admitted: Admitted
    remote: Address
    local: Address
    peer: Address
    is_tls: bool


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
                raise BadValue(
                    "rmq.proxyProtocolFrom",
                    text,
                    f"{part} is neither an address nor a range such as 10.0.0.0/8",
                ) from None

    def is_balancer(self, address: str) -> bool:
        """Return whether this address belongs to a balancer."""
        known = ipaddress.ip_address(address.partition("%")[0])
        return any(known in network for network in self._networks)


class _Caller:
    """A connection before its first byte; `source` is the address in a PROXY header."""

    __slots__ = ("admitted", "deadline", "has_header", "peer", "plain", "source")

    def __init__(self, plain: socket.socket, peer: Address, deadline: float) -> None:
        self.plain = plain
        self.peer = peer
        self.deadline = deadline
        self.admitted: Admitted | None = None
        self.has_header = False
        self.source: Address | None = None


class Sniffer:
    """The connections of a listener that have not sent their first byte."""

    def __init__(
        self,
        admission: Admission,
        balancers: Balancers,
        handover: Callable[[Sniffed], None],
        timeout_s: float,
        refuse_http2: Callable[[], str | None],
    ) -> None:
        """`handover` gets each connection that speaks within `timeout_s`.

        `refuse_http2` returns why clients of HTTP/2 are refused, or an empty text. None
        means that this is not known yet; `look_again` is called later.
        """
        self.admission = admission
        self._balancers = balancers
        self._handover = handover
        self._timeout_s = timeout_s
        self._refuse_http2 = refuse_http2
        self._ready = select.epoll()
        self._wait = trio.CancelScope()
        self._callers: dict[int, _Caller] = {}
        self._half_headers: dict[int, _Caller] = {}
        self._undecided: dict[int, _Caller] = {}

    async def run(self) -> None:
        """Inspect each connection when its bytes arrive, until cancelled."""
        try:
            while True:
                with trio.CancelScope(deadline=self._next_deadline()) as self._wait:
                    await trio.lowlevel.wait_readable(self._ready)
                self._expire()
                for number, _ in self._ready.poll(0, LOOKS_PER_TURN):
                    # the previous connection may have evicted this one
                    if number in self._callers:
                        self._inspect_bytes(self._callers[number])
        finally:
            for caller in list(self._callers.values()):
                self._end(caller)
            self._ready.close()

    def add(self, plain: socket.socket, peer: Address) -> None:
        """Wait for the first byte of a connection if there is room for it."""
        deadline = trio.current_time() + self._timeout_s
        caller = _Caller(plain, peer, deadline)
        caller.admitted = self.admission.admit(peer[0], partial(self._drop, caller))
        if caller.admitted is None:
            logger.warning(
                "refusing %s: no room for its connection (rmq.maxConnections=%d, "
                "rmq.maxConnectionsPerAddress=%d)",
                peer[0],
                self.admission.limit,
                self.admission.limit_per_address,
                extra=caused_by(peer[0]),
            )
            plain.close()
            return
        self._callers[plain.fileno()] = caller
        try:
            self._ready.register(plain, _EDGES)
        except OSError as error:  # no memory, or fs.epoll.max_user_watches
            logger.error("cannot serve %s: %s", peer, error, extra=caused_by(peer[0]))
            self._end(caller)
            return
        if deadline < self._wait.deadline:  # to set it costs more than to look
            self._wait.deadline = deadline

    def _inspect_bytes(self, caller: _Caller) -> None:
        """Hand a connection over, or end it, if its bytes show its protocol."""
        try:
            is_tls = self._first_bytes(caller)
        except BlockingIOError:
            return
        except RemoteProtocolError as error:
            logger.warning(
                "closing %s: %s",
                caller.peer[0],
                Foreign(error),
                extra=caused_by(caller.peer[0]),
            )
            self._end(caller)
        except OSError as error:
            logger.debug("a connection broke before its first byte: %s", error)
            self._end(caller)
        else:
            self._hand_over(caller, is_tls=is_tls)

    def _first_bytes(self, caller: _Caller) -> bool:
        """Return whether TLS follows; BlockingIOError if more bytes must come.

        At most one header is removed: a second one would come from the client itself.
        """
        while True:
            data = caller.plain.recv(proxy_header.PEEK_SIZE, socket.MSG_PEEK)
            if not data:
                raise ConnectionAbortedError("the peer closed before its first byte")
            if data[0] == TLS_FIRST_BYTE:
                return True
            if data.startswith(http2.START):
                self._check_http2(caller)
            if caller.has_header or not proxy_header.may_begin(data):
                return False
            self._remove_header(caller, data)

    def _check_http2(self, caller: _Caller) -> None:
        """Refuse a client of HTTP/2, or let it wait until it is served."""
        advice = self._refuse_http2()
        if advice is None:
            self._undecided[caller.plain.fileno()] = caller
            raise BlockingIOError("gRPC is being loaded")
        if advice:
            caller.plain.recv(HTTP2_READ)  # unread bytes would reset the answer
            caller.plain.send(http2.goaway_frames(advice))
            raise RemoteProtocolError(advice)

    def look_again(self) -> None:
        """Inspect again the clients of HTTP/2 that wait for `refuse_http2`."""
        undecided, self._undecided = self._undecided, {}
        for number, caller in undecided.items():
            if self._callers.get(number) is caller:
                self._ready.modify(number, _EDGES)

    def _remove_header(self, caller: _Caller, data: bytes) -> None:
        if not self._balancers.is_balancer(caller.peer[0]):
            raise RemoteProtocolError(
                "the peer sent a PROXY header and is no known load balancer: if it is "
                "one, add its address to rmq.proxyProtocolFrom"
            )
        number = caller.plain.fileno()
        header = proxy_header.parse(data)
        if header is None:
            if number not in self._half_headers:
                caller.deadline = trio.current_time() + HEADER_LIMIT_S
                self._wait.deadline = min(self._wait.deadline, caller.deadline)
                self._half_headers[number] = caller
            raise BlockingIOError("half a header")
        self._half_headers.pop(number, None)
        caller.plain.recv(header.size)
        caller.has_header, caller.source = True, header.source
        assert caller.admitted is not None
        if caller.source and not self.admission.rename(
            caller.admitted, caller.source[0]
        ):
            raise RemoteProtocolError(f"{caller.source[0]} has too many connections")

    def _hand_over(self, caller: _Caller, *, is_tls: bool) -> None:
        plain, admitted = caller.plain, caller.admitted
        assert admitted is not None
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            local = plain_address(plain.getsockname())
        except OSError as error:
            logger.debug("a connection broke at its first byte: %s", error)
            self._end(caller)
            return
        self._ready.unregister(plain)
        self._remove_caller(caller)
        remote = caller.source or caller.peer
        self._handover(Sniffed(plain, admitted, remote, local, caller.peer, is_tls))

    def _next_deadline(self) -> float:
        return min(
            next((caller.deadline for caller in waiting.values()), math.inf)
            for waiting in (self._callers, self._half_headers)
        )

    def _expire(self) -> None:
        """End the connections whose time limit has passed; each table is sorted by
        time.
        """
        now = trio.current_time()
        for waiting, limit_s, what in (
            (self._half_headers, HEADER_LIMIT_S, "an incomplete PROXY header"),
            (self._callers, self._timeout_s, "nothing"),
        ):
            late = itertools.takewhile(lambda c: c.deadline <= now, waiting.values())
            for caller in list(late):
                address = caller.peer[0]
                logger.info(
                    "%s sent %s for %s s",
                    address,
                    what,
                    limit_s,
                    extra=caused_by(address),
                )
                self._end(caller)

    def _end(self, caller: _Caller) -> None:
        if caller.admitted is not None:
            self.admission.remove_connection(caller.admitted)
        self._drop(caller)

    def _drop(self, caller: _Caller) -> None:
        """Close a connection that has left; its descriptor leaves the epoll set."""
        self._remove_caller(caller)
        caller.plain.close()

    def _remove_caller(self, caller: _Caller) -> None:
        number = caller.plain.fileno()
        self._callers.pop(number, None)
        self._half_headers.pop(number, None)


def plain_address(name: tuple[str, int]) -> Address:
    """Return host and port; an IPv4 address over IPv6 in its IPv4 form."""
    return name[0].removeprefix("::ffff:"), name[1]
