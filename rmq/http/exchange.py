"""One HTTP/1.1 exchange over a trio stream; h11 parses and writes it.

`Exchange` is the server's end of a connection, `fetch` a client that gets one page.
Heads have at most `MAX_HEAD_SIZE` bytes; each caller limits bodies and time.  An
invalid message raises h11.RemoteProtocolError, whose `error_status_hint` is the status
to answer.
"""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import h11
import trio

from rmq import __version__
from rmq.core.address import Address

MAX_HEAD_SIZE: Final = 8_192
"""Maximum bytes of the head of a request; some hundred are usual."""

SEND_BYTES: Final = 1 << 18
"""Maximum bytes of an answer between two yields to the event loop."""

DRAIN_S: Final = 1.0
"""Time that a server waits until the peer has read its last answer."""

Headers = Iterable[tuple[str, str]]


class Exchange:
    """The server's end of a connection: requests one after the other."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self._stream = stream
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MAX_HEAD_SIZE)

    async def read_head(self) -> h11.Request | None:
        """Read the head of a request; None if the peer left before."""
        size = 0
        while (event := self._http.next_event()) is h11.NEED_DATA:
            data = await self._stream.receive_some(MAX_HEAD_SIZE)
            size += len(data)
            if size > MAX_HEAD_SIZE:
                raise h11.RemoteProtocolError("too large", error_status_hint=431)
            self._http.receive_data(bytes(data))
        return event if isinstance(event, h11.Request) else None

    async def read_body(self, limit: int) -> bytes:
        """Read the body of the request whose head was read."""
        return bytes(await _read_body(self._stream, self._http, limit))

    async def reply(
        self, status: int, headers: Headers, body: bytes, *, with_body: bool = True
    ) -> None:
        """Send a complete answer; the answer to HEAD has no body."""
        length = ("Content-Length", str(len(body)))
        sent = [self._encode_head(status, [*headers, length])]
        if with_body and body:
            sent.append(self._http.send(h11.Data(body)) or b"")
        sent.append(self._http.send(h11.EndOfMessage()) or b"")
        if sum(map(len, sent)) <= SEND_BYTES:
            sent = [b"".join(sent)]
        for part in sent:
            for at in range(0, len(part), SEND_BYTES):
                await self._stream.send_all(memoryview(part)[at : at + SEND_BYTES])

    async def begin_stream(self, headers: Headers, data: bytes) -> None:
        """Send the head of an answer without an end, and its first part."""
        head = self._encode_head(HTTPStatus.OK, headers)
        await self._stream.send_all(head + (self._http.send(h11.Data(data)) or b""))

    async def send_part(self, data: bytes) -> None:
        """Send the next part of an answer without an end."""
        await self._stream.send_all(self._http.send(h11.Data(data)) or b"")

    def start_next(self) -> bool:
        """Prepare for the next request; False if this was the last one."""
        is_done = {self._http.our_state, self._http.their_state} == {h11.DONE}
        if is_done:
            self._http.start_next_cycle()
        return is_done

    async def finish(self) -> None:
        """Wait until the peer has read the last answer.

        If the connection were closed with unread bytes, the peer would lose the answer.
        """
        with trio.move_on_after(DRAIN_S):
            if isinstance(self._stream, trio.abc.HalfCloseableStream):
                await self._stream.send_eof()
            while await self._stream.receive_some():
                pass

    def _encode_head(self, status: int, headers: Headers) -> bytes:
        head = h11.Response(
            status_code=status,
            reason=HTTPStatus(status).phrase,
            headers=[("Server", f"rmq/{__version__}"), *headers],
        )
        return self._http.send(head) or b""


async def fetch(address: str, path: str, limit: int) -> tuple[int, bytes]:
    """Get one page of at most `limit` bytes over a new connection."""
    http = h11.Connection(h11.CLIENT)
    request = h11.Request(
        method="GET",
        target=path,
        headers=[("Host", address), ("Connection", "close")],
    )
    async with await trio.open_tcp_stream(*Address.parse(address)) as stream:
        sent = (http.send(request) or b"") + (http.send(h11.EndOfMessage()) or b"")
        await stream.send_all(sent)
        while not isinstance(event := http.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                http.receive_data(bytes(await stream.receive_some()))
        return event.status_code, bytes(await _read_body(stream, http, limit))


async def _read_body(
    stream: trio.abc.Stream, http: h11.Connection, limit: int
) -> bytearray:
    body = bytearray()
    while True:
        event = http.next_event()
        if event is h11.NEED_DATA:
            http.receive_data(bytes(await stream.receive_some()))
        elif isinstance(event, h11.Data):
            body += event.data
            if len(body) > limit:
                raise h11.RemoteProtocolError(
                    f"the body exceeds {limit} bytes", error_status_hint=413
                )
        else:
            return body
