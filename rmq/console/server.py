"""ConsoleServer: HTTP/1.1 for browsers, on one address.

It uses TLS if rmq.consoleTls is on.  A connection may bring many requests, one after
the other; an event stream is its last.  Limits: connections, streams, the size of a
head and of a body, the time of a request, the silence between two requests.
"""

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

from rmq.console.config import ConsoleConfig, ConsoleTls
from rmq.console.headers import ALWAYS
from rmq.console.live import SILENCE_S, encode_event
from rmq.console.routes import Answer, Request, Routes, Stream, error_answer
from rmq.core.address import Address, is_loopback
from rmq.core.errors import ConfigError
from rmq.core.logs import Foreign
from rmq.http.exchange import Exchange
from rmq.http.listener import Listener
from rmq.remoting.tls import TlsConfig, WatchedContext, server_context

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

logger = logging.getLogger(__name__)

MAX_STREAMS: Final = 16
MAX_BODY_SIZE: Final = 65_536
MAX_FIELDS: Final = 20
"""Maximum number of fields of a query."""

PROTOCOL: Final = "http/1.1"
REQUEST_S: Final = 10.0
IDLE_S: Final = 30.0
CHECK_S: Final = 10.0
"""Pause between two checks of the user of a stream."""

STREAM_HEADERS: Final = (
    *ALWAYS,
    ("Content-Type", "text/event-stream"),
    ("Cache-Control", "no-store"),
    ("X-Accel-Buffering", "no"),
    ("Connection", "close"),
)
OPEN_WARNING: Final = (
    "the console on port %d of %s is open without authentication: everybody who "
    "reaches it sees topics, groups and clients"
)


class ConsoleServer:
    """Binds its address in `open`, serves in `run`."""

    _routes: Routes
    _nursery: trio.Nursery

    def __init__(self, config: ConsoleConfig, tls: TlsConfig) -> None:
        self._config = config
        self._tls: WatchedContext | None = None
        if config.console_tls is ConsoleTls.on:
            self._tls = server_context(tls, PROTOCOL)
            if self._tls is None:
                raise ConfigError(
                    "rmq.consoleTls=on: set a certificate and its key with "
                    "tls.server.certPath and tls.server.keyPath, and tls.server.mode "
                    "to permissive or enforcing"
                )
        self._listener = Listener(
            "the console",
            config.console_host,
            config.console_port,
            "set rmq.consolePort (0 takes any)",
            any_port=config.console_any_port,
        )
        self.open = self._listener.open
        self.close = self._listener.close
        self._streams = 0

    @property
    def port(self) -> int:
        """The configured port; after `open` the port that the socket has."""
        return self._listener.port

    @property
    def address(self) -> str:
        """The address for browsers."""
        scheme = "https" if self._config.console_tls is ConsoleTls.on else "http"
        return f"{scheme}://{Address(self._config.console_host, self.port)}"

    async def run(self, broker: "BrokerContext") -> None:
        """Serve until cancelled."""
        self._routes = Routes(self._config, broker)
        self._routes.port = self.port
        if not self._routes.sessions.is_needed and not is_loopback(
            self._config.console_host
        ):
            logger.warning(OPEN_WARNING, self.port, self._config.console_host)
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            nursery.start_soon(self._routes.history.run)
            if self._tls is not None:
                nursery.start_soon(self._tls.follow)
            await self._listener.serve(self._serve)

    async def _serve(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """Answer the requests of one connection; errors of the peer end here."""
        wire: trio.abc.Stream = stream
        if self._tls is not None:
            wire = trio.SSLStream(
                stream, self._tls.context, server_side=True, https_compatible=True
            )
        try:
            async with wire:
                host, port, *_ = stream.socket.getpeername()
                await self._serve_requests(Exchange(wire), scope, f"{host}:{port}")
        except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
            logger.debug("a browser closed its connection before the answer")
        except Exception:  # supervises the connections
            logger.exception("a connection of the console failed")

    async def _serve_requests(
        self, exchange: Exchange, slot: trio.CancelScope, address: str
    ) -> None:
        while True:
            try:
                with trio.move_on_after(IDLE_S) as scope:
                    request = await _read_request(exchange, address)
            except h11.RemoteProtocolError as error:
                status = HTTPStatus(error.error_status_hint)
                await _send(exchange, error_answer(status, f"{status.phrase}."))
                await exchange.finish()
                return
            if scope.cancelled_caught or request is None:
                return
            if not await self._reply(exchange, request, slot):
                return
            if not exchange.start_next():
                return

    async def _reply(
        self, exchange: Exchange, request: Request, slot: trio.CancelScope
    ) -> bool:
        """Answer a request, perhaps with a stream of events; False after a time-out."""
        answer: Answer | Stream | None = None
        with trio.move_on_after(REQUEST_S) as scope:
            with self._listener.slots.protect_slot(slot):
                answer = await self._answer_request(request)
            if not isinstance(answer, Stream):
                await _send(exchange, answer, with_body=request.method != "HEAD")
        if isinstance(answer, Stream):
            with self._listener.slots.protect_slot(slot):
                await self._serve_stream(exchange, request, answer)
            return False
        return not scope.cancelled_caught

    async def _answer_request(self, request: Request) -> Answer | Stream:
        try:
            answer = await self._routes.answer_request(request)
        except Exception:  # supervises the answers
            logger.exception("the page %s failed", Foreign(request.path))
            return error_answer(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "This view failed. The log of the broker has the reason.",
            )
        if isinstance(answer, Stream) and self._streams >= MAX_STREAMS:
            return error_answer(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MAX_STREAMS} pages of this broker are open already, the limit: "
                f"close one.",
            )
        return answer

    async def _serve_stream(
        self, exchange: Exchange, request: Request, wanted: Stream
    ) -> None:
        """Send events until the browser leaves, or its user loses the right to the
        view.
        """
        self._streams += 1
        try:
            await exchange.begin_stream(STREAM_HEADERS, b"retry: 1000\n\n")
            async with self._routes.live.listen(
                wanted.view, wanted.query, wanted.compute, self._nursery
            ) as events:
                await self._forward_events(exchange, request, wanted, events)
        finally:
            self._streams -= 1

    async def _forward_events(
        self, exchange: Exchange, request: Request, wanted: Stream,
        events: trio.MemoryReceiveChannel[bytes],
    ) -> None:  # fmt: skip
        checked = trio.current_time()
        while True:
            data = b": \n\n"
            with trio.move_on_after(SILENCE_S):
                try:
                    data = await events.receive()
                except trio.EndOfChannel:
                    return
            if trio.current_time() - checked >= CHECK_S:
                checked = trio.current_time()
                user = self._routes.sessions.user(wanted.key, request.address)
                if user is None:
                    await exchange.send_part(encode_event("bye", {"why": "signed out"}))
                    return
            with trio.move_on_after(REQUEST_S) as scope:
                await exchange.send_part(data)
            if scope.cancelled_caught:
                return


async def _read_request(exchange: Exchange, address: str) -> Request | None:
    """Read a request; None if the peer has left, RemoteProtocolError if not valid."""
    head = await exchange.read_head()
    if head is None:
        return None
    return _request_of(head, await exchange.read_body(MAX_BODY_SIZE), address)


def _request_of(head: h11.Request, body: bytes, address: str) -> Request:
    parts = urlsplit(head.target.decode("ascii"))
    try:
        pairs = parse_qsl(
            parts.query, keep_blank_values=True, max_num_fields=MAX_FIELDS
        )
    except ValueError as error:
        raise h11.RemoteProtocolError("the query is too long") from error
    return Request(
        head.method.decode("ascii"),
        unquote(parts.path),
        dict(pairs),
        {name.decode("latin1"): value.decode("latin1") for name, value in head.headers},
        body,
        address,
    )


async def _send(exchange: Exchange, answer: Answer, *, with_body: bool = True) -> None:
    headers = (*ALWAYS, ("Content-Type", answer.content_type), *answer.headers)
    await exchange.reply(answer.status, headers, answer.body, with_body=with_body)
