"""HttpServer: a few pages for machines, on one address.

The part of HTTP/1.1 that scrapers and load balancers need, read and written by h11: one
GET or HEAD per connection, no compression.  Limits: the number of connections, the size
of a head, the time of an exchange.
There is no authentication: bind it to loopback, or to a network that only the
monitoring can reach.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import h11
import trio

from rmq import __version__
from rmq.core.errors import ConfigError
from rmq.core.logs import Foreign
from rmq.http.connection_slots import Places

logger = logging.getLogger(__name__)

MAX_HEAD_SIZE = 8_192
"""Bytes of a request's head; some hundred are usual."""

MAX_CONNECTIONS = 32
"""Few clients ask, and a page takes a fraction of a second."""

TIMEOUT_S = 10.0
"""Limit of a whole exchange: a slower scraper has timed out itself."""

TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """The answer of a path."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


ADVICE = (
    "set metricsPromExporterPort (0 takes any free port) or metricsExporterType=DISABLE"
)
"""What a node can do if its address is not free."""


class HttpServer:
    """Binds its address in `open`, serves pages in `run`."""

    def __init__(self, host: str, port: int, *, advice: str = ADVICE) -> None:
        self.port = port
        self._host = host
        self._advice = advice
        self._pages: Pages = {}
        self._listeners: list[trio.SocketListener] = []
        self._places = Places(MAX_CONNECTIONS)

    async def open(self) -> None:
        """Bind the address; ConfigError if it is not free."""
        try:
            self._listeners = await trio.open_tcp_listeners(self.port, host=self._host)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {self._host}:{self.port}: "
                f"{error.strerror or error}; {self._advice}"
            ) from error
        self.port = self._listeners[0].socket.getsockname()[1]

    async def run(
        self,
        pages: Pages,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Answer until cancelled."""
        assert self._listeners, "open it first"
        self._pages = pages
        task_status.started()
        await trio.serve_listeners(self._serve, self._listeners)

    async def close(self) -> None:
        """Close the listeners."""
        for listener in self._listeners:
            await listener.aclose()

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Answer one request; errors of the peer end here."""
        async with stream:
            with trio.move_on_after(TIMEOUT_S) as scope:
                if not self._places.take(scope):
                    return
                try:
                    await self._exchange(stream, scope)
                except trio.BrokenResourceError:
                    logger.debug("a peer left before its answer")
                finally:
                    self._places.leave(scope)

    async def _exchange(
        self, stream: trio.SocketStream, scope: trio.CancelScope
    ) -> None:
        http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_SIZE)
        with_body = True
        try:
            request = await _read_request(stream, http)
        except h11.RemoteProtocolError as error:
            page = _error(HTTPStatus(error.error_status_hint))
        else:
            if request is None:
                return
            with self._places.kept(scope):
                page = await self._page(request)
            with_body = request.method != b"HEAD"
        await stream.send_all(_encode(http, page, with_body=with_body))
        await stream.send_eof()
        await stream.receive_some(1)

    async def _page(self, request: h11.Request) -> Page:
        target = request.target.decode("ascii")
        page = self._pages.get(target.partition("?")[0])
        if request.method not in (b"GET", b"HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED)
        if page is None:
            return _error(HTTPStatus.NOT_FOUND)
        try:
            return await page()
        except Exception:  # the supervisor of pages
            logger.exception("the page %s failed", Foreign(target))
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR)


async def _read_request(
    stream: trio.SocketStream, http: h11.Connection
) -> h11.Request | None:
    """Read a head; None if the peer sent nothing, RemoteProtocolError if not valid."""
    size = 0
    while (event := http.next_event()) is h11.NEED_DATA:
        data = await stream.receive_some(MAX_HEAD_SIZE + 1 - size)
        size += len(data)
        http.receive_data(data)
    return event if isinstance(event, h11.Request) else None


def _error(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status)


def _encode(http: h11.Connection, page: Page, *, with_body: bool) -> bytes:
    head = h11.Response(
        status_code=page.status,
        reason=page.status.phrase,
        headers=[
            ("Server", f"rmq/{__version__}"),
            ("Content-Type", page.content_type),
            ("Content-Length", str(len(page.body))),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        ],
    )
    events: list[h11.Event] = [head]
    if with_body:
        events.append(h11.Data(page.body))
    return b"".join(http.send(event) or b"" for event in (*events, h11.EndOfMessage()))
