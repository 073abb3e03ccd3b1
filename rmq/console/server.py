"""ConsoleServer: HTTP/1.1 for browsers, on one address.

Read and written by h11, inside TLS if rmq.consoleTls is on.  A connection may bring
many requests, one after the other; an event stream is its last.  Limits: connections,
streams, the size of a head and of a body, the time of a request, the silence between
two.
"""

import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, unquote, urlsplit

import h11
import trio

from rmq import __version__
from rmq.console.config import ConsoleConfig, ConsoleTls
from rmq.console.headers import ALWAYS, is_loopback
from rmq.console.live import SILENCE_S, event
from rmq.console.routes import Answer, Request, Routes, Stream, refusal
from rmq.core.errors import ConfigError
from rmq.core.logs import Foreign
from rmq.http.connection_slots import Places
from rmq.remoting.tls import TlsConfig, WatchedContext, server_context

if TYPE_CHECKING:
    from rmq.broker.context import BrokerContext

logger = logging.getLogger(__name__)

MAX_CONNECTIONS: Final = 32
MAX_STREAMS: Final = 16
MAX_HEAD_SIZE: Final = 8_192
MAX_BODY_SIZE: Final = 65_536
MAX_FIELDS: Final = 20
"""Fields of a query."""

PROTOCOL: Final = "http/1.1"
REQUEST_S: Final = 10.0
IDLE_S: Final = 30.0
DRAIN_S: Final = 1.0
CHECK_S: Final = 10.0
"""A stream's user is checked again so often."""

OPEN_WARNING: Final = (
    "the console on port %d of %s is open without authentication: everybody who "
    "reaches it sees topics, groups and clients"
)


class ConsoleServer:
    """Binds its address in `open`, serves in `run`."""

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
        self.port = config.console_port
        self._listeners: list[trio.SocketListener] = []
        self._places = Places(MAX_CONNECTIONS)
        self._streams = 0
        self._routes: Routes | None = None
        self._nursery: trio.Nursery | None = None

    async def open(self) -> None:
        """Bind the address; ConfigError if it is not free."""
        host = self._config.console_host
        try:
            self._listeners = await trio.open_tcp_listeners(self.port, host=host)
        except OSError as error:
            raise ConfigError(
                f"the console cannot be served on {host}:{self.port}: "
                f"{error.strerror or error}; set rmq.consolePort (0 takes any)"
            ) from error
        self.port = self._listeners[0].socket.getsockname()[1]

    async def run(self, broker: "BrokerContext") -> None:
        """Serve until cancelled."""
        assert self._listeners, "open it first"
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
            await trio.serve_listeners(self._serve, self._listeners)

    async def close(self) -> None:
        """Close the listeners."""
        for listener in self._listeners:
            await listener.aclose()

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Answer the requests of one connection; errors of the peer end here."""
        with trio.CancelScope() as scope:
            if not self._places.take(scope):
                await trio.aclose_forcefully(stream)
                return
            wire: trio.abc.Stream = stream
            if self._tls is not None:
                wire = trio.SSLStream(
                    stream, self._tls.context, server_side=True, https_compatible=True
                )
            try:
                async with wire:
                    host, port, *_ = stream.socket.getpeername()
                    await self._converse(wire, scope, f"{host}:{port}")
            except (trio.BrokenResourceError, trio.ClosedResourceError, OSError):
                logger.debug("a browser left before its answer")
            except Exception:  # the supervisor of connections
                logger.exception("a connection of the console failed")
            finally:
                self._places.leave(scope)

    async def _converse(
        self, stream: trio.abc.Stream, place: trio.CancelScope, address: str
    ) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_SIZE)
        while True:
            try:
                with trio.move_on_after(IDLE_S) as scope:
                    request = await _read(stream, http, address)
            except h11.RemoteProtocolError as error:
                status = HTTPStatus(error.error_status_hint)
                await _send(stream, http, refusal(status, f"{status.phrase}."), True)
                await _drain(stream)
                return
            if scope.cancelled_caught or request is None:
                return
            if not await self._reply(stream, http, request, place):
                return
            if http.our_state is not h11.DONE:
                return
            if http.their_state is not h11.DONE:
                return
            http.start_next_cycle()

    async def _reply(
        self, stream: trio.abc.Stream, http: h11.Connection, request: Request,
        place: trio.CancelScope,
    ) -> bool:  # fmt: skip
        """Answer a request, with events until they end; False if that took too long."""
        answer: Answer | Stream | None = None
        with trio.move_on_after(REQUEST_S) as scope:
            with self._places.kept(place):
                answer = await self._answer(request)
            if not isinstance(answer, Stream):
                await _send(stream, http, answer, request.method != "HEAD")
        if isinstance(answer, Stream):
            with self._places.kept(place):
                await self._stream(stream, http, request, answer)
            return False
        return not scope.cancelled_caught

    async def _answer(self, request: Request) -> Answer | Stream:
        assert self._routes is not None, "run it first"
        try:
            answer = await self._routes.answer(request)
        except Exception:  # the supervisor of answers
            logger.exception("the page %s failed", Foreign(request.path))
            return refusal(
                HTTPStatus.INTERNAL_SERVER_ERROR,
                "This view failed. The log of the broker has the reason.",
            )
        if isinstance(answer, Stream) and self._streams >= MAX_STREAMS:
            return refusal(
                HTTPStatus.SERVICE_UNAVAILABLE,
                f"{MAX_STREAMS} pages look at this broker already: close one.",
            )
        return answer

    async def _stream(
        self, stream: trio.abc.Stream, http: h11.Connection, request: Request,
        wanted: Stream,
    ) -> None:  # fmt: skip
        """Send events until the browser leaves, or its user may not look any more."""
        assert self._routes is not None, "run it first"
        assert self._nursery is not None, "run it first"
        self._streams += 1
        try:
            head = _head(
                HTTPStatus.OK,
                [
                    ("Content-Type", "text/event-stream"),
                    ("Cache-Control", "no-store"),
                    ("X-Accel-Buffering", "no"),
                    ("Connection", "close"),
                ],
            )
            await stream.send_all(
                (http.send(head) or b"") + _data(http, b"retry: 1000\n\n")
            )
            async with self._routes.live.listen(
                wanted.view, wanted.query, wanted.compute, self._nursery
            ) as events:
                await self._pass_on(stream, http, request, wanted, events)
        finally:
            self._streams -= 1

    async def _pass_on(
        self, stream: trio.abc.Stream, http: h11.Connection, request: Request,
        wanted: Stream, events: trio.MemoryReceiveChannel[bytes],
    ) -> None:  # fmt: skip
        assert self._routes is not None, "run it first"
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
                    bye = event("bye", {"why": "signed out"})
                    await stream.send_all(_data(http, bye))
                    return
            with trio.move_on_after(REQUEST_S) as scope:
                await stream.send_all(_data(http, data))
            if scope.cancelled_caught:
                return


async def _drain(stream: trio.abc.Stream) -> None:
    """Let the peer read an answer before the end: unread bytes would cut it off."""
    with trio.move_on_after(DRAIN_S):
        if isinstance(stream, trio.abc.HalfCloseableStream):
            await stream.send_eof()
        while await stream.receive_some(MAX_BODY_SIZE):
            pass


async def _read(
    stream: trio.abc.Stream, http: h11.Connection, address: str
) -> Request | None:
    """Read a request; None if the peer has left, RemoteProtocolError if not valid."""
    head: h11.Request | None = None
    body = b""
    size = 0
    while True:
        part = http.next_event()
        if part is h11.NEED_DATA:
            data = await stream.receive_some(MAX_HEAD_SIZE)
            size += len(data)
            if head is None and size > MAX_HEAD_SIZE:
                raise h11.RemoteProtocolError("too large", error_status_hint=431)
            http.receive_data(bytes(data))
        elif isinstance(part, h11.Request):
            head = part
        elif isinstance(part, h11.Data):
            body += part.data
            if len(body) > MAX_BODY_SIZE:
                raise h11.RemoteProtocolError("too large", error_status_hint=413)
        elif isinstance(part, h11.EndOfMessage):
            assert head is not None, "a body without a head"
            return _request(head, body, address)
        else:
            return None


def _request(head: h11.Request, body: bytes, address: str) -> Request:
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


def _head(status: int, headers: list[tuple[str, str]]) -> h11.Response:
    own = [("Server", f"rmq/{__version__}"), *ALWAYS]
    return h11.Response(status_code=status, headers=[*own, *headers])


def _data(http: h11.Connection, data: bytes) -> bytes:
    return http.send(h11.Data(data)) or b""


async def _send(
    stream: trio.abc.Stream, http: h11.Connection, answer: Answer, with_body: bool
) -> None:
    head = _head(
        answer.status,
        [
            ("Content-Type", answer.content_type),
            ("Content-Length", str(len(answer.body))),
            *answer.headers,
        ],
    )
    events: list[h11.Event] = [head]
    if with_body and answer.body:
        events.append(h11.Data(answer.body))
    events.append(h11.EndOfMessage())
    await stream.send_all(b"".join(http.send(each) or b"" for each in events))
