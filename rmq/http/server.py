"""HttpServer: a few pages for machines, on one address.

HTTP/1.1 as far as a scraper and a load balancer need it: one GET or HEAD a connection,
no body, no compression.  Everything that comes in has a limit: connections, the size of
a head, the time to send it.  There is no authentication: bind it to loopback, or to a
network that only the monitoring can reach.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

import trio

from rmq import __version__
from rmq.errors import ConfigError

logger = logging.getLogger(__name__)

MAX_HEAD_SIZE = 8_192
MAX_CONNECTIONS = 32
TIMEOUT_S = 10.0
"""For a whole exchange: a scraper that is slower has given up itself."""

TEXT = "text/plain; charset=utf-8"


class Page(NamedTuple):
    """What a path answers."""

    body: bytes
    status: HTTPStatus = HTTPStatus.OK
    content_type: str = TEXT


Pages = Mapping[str, Callable[[], Awaitable[Page]]]


class HttpServer:
    """Takes its address with `open`, serves pages with `run`."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self._host = host
        self._pages: Pages = {}
        self._listeners: list[trio.SocketListener] = []
        self._open = 0

    async def open(self) -> None:
        """Take the address; ConfigError if it is not free."""
        try:
            self._listeners = await trio.open_tcp_listeners(self.port, host=self._host)
        except OSError as error:
            raise ConfigError(
                f"metrics cannot be served on {self._host}:{self.port}: "
                f"{error.strerror or error}; set metricsPromExporterPort (0 takes any "
                "free port) or metricsExporterType=DISABLE"
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
        """Give the address back."""
        for listener in self._listeners:
            await listener.aclose()

    async def _serve(self, stream: trio.SocketStream) -> None:
        """Answer one request; whatever the peer does wrong ends here."""
        async with stream:
            if self._open >= MAX_CONNECTIONS:
                return
            self._open += 1
            try:
                with trio.move_on_after(TIMEOUT_S):
                    head = await _read_head(stream)
                    await stream.send_all(await self._answer(head))
                    await stream.send_eof()
                    await stream.receive_some(1)
            except trio.BrokenResourceError:
                logger.debug("a peer left before its answer")
            finally:
                self._open -= 1

    async def _answer(self, head: bytes) -> bytes:
        parts = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
        if len(parts) != 3 or not parts[2].startswith("HTTP/1."):
            return _encode(_error(HTTPStatus.BAD_REQUEST))
        method, target, _ = parts
        page = self._pages.get(target.partition("?")[0])
        if method not in ("GET", "HEAD"):
            return _encode(_error(HTTPStatus.METHOD_NOT_ALLOWED))
        if page is None:
            return _encode(_error(HTTPStatus.NOT_FOUND))
        try:
            answer = await page()
        except Exception:  # the supervisor of pages
            logger.exception("the page %s failed", target)
            answer = _error(HTTPStatus.INTERNAL_SERVER_ERROR)
        return _encode(answer, with_body=method == "GET")


async def _read_head(stream: trio.SocketStream) -> bytes:
    """Read up to the blank line; what is longer than the limit is cut, and refused."""
    head = b""
    while b"\r\n\r\n" not in head and len(head) < MAX_HEAD_SIZE:
        data = await stream.receive_some(MAX_HEAD_SIZE - len(head))
        if not data:
            break
        head += data
    return head if b"\r\n\r\n" in head else b""


def _error(status: HTTPStatus) -> Page:
    return Page(f"{status.value} {status.phrase}\n".encode(), status)


def _encode(page: Page, *, with_body: bool = True) -> bytes:
    head = (
        f"HTTP/1.1 {page.status.value} {page.status.phrase}\r\n"
        f"Server: rmq/{__version__}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {len(page.body)}\r\n"
        "Cache-Control: no-store\r\n"
        "Connection: close\r\n\r\n"
    )
    return head.encode() + (page.body if with_body else b"")
