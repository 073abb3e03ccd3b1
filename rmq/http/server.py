"""HttpServer: a few pages for machines, on one address.

The part of HTTP/1.1 that scrapers and load balancers need: one GET or HEAD per
connection, no compression.  Limits: the number of connections, the size of a head, the
time of an exchange. There is no authentication: bind it to loopback, or to a network
that only the monitoring can reach.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import h11
import trio

from rmq.core.logs import Foreign
from rmq.http.exchange import Exchange
from rmq.http.listener import Listener

logger = logging.getLogger(__name__)

TIMEOUT_S = 10.0
"""Time limit of a whole exchange: slower scrapers time out themselves."""

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
"""Advice to the operator if the address is not free."""


class HttpServer:
    """Binds its address in `open`, serves pages in `run`."""

    def __init__(self, host: str, port: int, *, advice: str = ADVICE) -> None:
        self._listener = Listener("metrics", host, port, advice)
        self._pages: Pages = {}
        self.open = self._listener.open
        self.close = self._listener.close

    @property
    def port(self) -> int:
        """The port of the address; the real port once it is open."""
        return self._listener.port

    async def run(
        self,
        pages: Pages,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until cancelled."""
        self._pages = pages
        task_status.started()
        await self._listener.serve(self._serve)

    async def _serve(self, stream: trio.SocketStream, scope: trio.CancelScope) -> None:
        """Answer one request; errors of the peer end here."""
        async with stream:
            with trio.move_on_after(TIMEOUT_S):
                try:
                    await self._answer_request(Exchange(stream), scope)
                except trio.BrokenResourceError:
                    logger.debug("a peer closed its connection before the answer")

    async def _answer_request(
        self, exchange: Exchange, scope: trio.CancelScope
    ) -> None:
        with_body = True
        try:
            request = await exchange.read_head()
        except h11.RemoteProtocolError as error:
            page = _error_page(HTTPStatus(error.error_status_hint))
        else:
            if request is None:
                return
            with self._listener.slots.protect_slot(scope):
                page = await self._page_of(request)
            with_body = request.method != b"HEAD"
        headers = (
            ("Content-Type", page.content_type),
            ("Cache-Control", "no-store"),
            ("Connection", "close"),
        )
        await exchange.reply(page.status, headers, page.body, with_body=with_body)
        await exchange.finish()

    async def _page_of(self, request: h11.Request) -> Page:
        target = request.target.decode("ascii")
        page = self._pages.get(target.partition("?")[0])
        if request.method not in (b"GET", b"HEAD"):
            return _error_page(HTTPStatus.METHOD_NOT_ALLOWED)
        if page is None:
            return _error_page(HTTPStatus.NOT_FOUND)
        try:
            return await page()
        except Exception:  # supervises the pages
            logger.exception("the page %s failed", Foreign(target))
            return _error_page(HTTPStatus.INTERNAL_SERVER_ERROR)


def _error_page(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status)
