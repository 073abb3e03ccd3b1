"""GrpcServer: the calls of gRPC that Python serves.

`after_poll` takes calls from the wire and gives each to `serve_call`, for at most
TURN_S at once. A call is answered now or later; it ends with `send_answer` or `end`.
The service of a plugin is made when the first client of HTTP/2 comes.
Belongs to the trio thread.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import Final, NamedTuple, Protocol

import trio

from rmq._fastpath.http2.call_paths import CallPath
from rmq._fastpath.http2.grpc_methods import METHOD_NAMES
from rmq._fastpath.http2.grpc_wire import GrpcEvent, GrpcWire
from rmq._fastpath.http2.header_names import KNOWN_NAMES
from rmq._fastpath.reactor.reactor import Reactor
from rmq.core.logs import SparseLog, caused_by
from rmq.remoting.connection import Connection

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

TURN_S: Final = 0.0005
"""Time in which Python serves calls before other tasks run."""

LATE_LIMIT: Final = 256 * 1024
"""Bytes of one answer that may wait for the peer before its next message is made."""

DRAIN_S: Final = 1.0
"""Time for clients to close their connections before the broker stops."""

INTERNAL: Final = 13
ReturnedCall = tuple[Callable[..., None], tuple[object, ...]]
"""A function, and its arguments after the call: for a call that compiled code held."""

_NAMES: Final = tuple(name.decode() for name in METHOD_NAMES)
_HEADERS: Final = {number: name.decode() for name, number in KNOWN_NAMES.items()}


class GrpcStatistics(NamedTuple):
    """Sums since the start, and connections and calls that are open now."""

    connections: int
    open_calls: int
    frames: int
    calls: int
    skipped: int
    resets: int
    refused: int
    failures: int
    floods: int


class GrpcCall:
    """A call, or a stream of Telemetry; objects compare by identity."""

    __slots__ = ("_server", "connection", "is_open", "message", "metadata", "method",
                 "on_end", "on_message", "on_room", "stream")  # fmt: skip

    def __init__(
        self,
        server: "GrpcServer",
        connection: Connection,
        stream: int,
        method: str,
    ) -> None:
        self._server = server
        self.connection = connection
        self.stream = stream
        self.method = method
        self.message = b""
        self.metadata: Mapping[str, str] = {}
        """Values by the names of headers, as far as the wire knows them.

        Message and metadata are there while `serve_call` runs.
        """

        self.is_open = True
        self.on_message: Callable[[bytes | None], None] | None = None
        """Gets further messages of Telemetry, and None after the last one."""

        self.on_end: Callable[[], None] | None = None
        """Called when the client has reset the call, or its connection is gone."""

        self.on_room: Callable[[], None] | None = None

    def send_answer(self, message: bytes) -> None:
        """Send the only, or last, message of the answer."""
        self._server.finish(self, message, 0, "")

    def send(self, message: bytes) -> bool:
        """Send one of several messages; False if the call is gone."""
        return self.is_open and self._server.send(self, message)

    def send_all(self, messages: list[bytes]) -> bool:
        """Send the whole answer and end the call; False if the call is gone."""
        return self.is_open and self._server.finish_all(self, messages)

    def ask_handler(self, user: str, code: int, fields: dict[str, str]) -> bytes | None:
        """Return the frame with the reply of a compiled handler; None if it declines.

        The user has signed the call, and the request must not wait.
        """
        return self._server.ask_handler(self, user, code, fields)

    def end(self, status: int = 0, text: str = "") -> None:
        """End the answer with a status of gRPC."""
        self._server.finish(self, None, status, text)

    def run(self, function: Callable[..., None], *arguments: object) -> None:
        """Call a function outside of `serve_call`; an error ends the call."""
        self._server.run(self, function, *arguments)

    def wait_for_room(self, on_room: Callable[[], None]) -> bool:
        """Return whether too many bytes wait for the peer; then `on_room` is called
        later.
        """
        return self._server.wait_for_room(self, on_room)


class GrpcService(Protocol):
    """Serves the calls; a plugin makes it."""

    compiled: Mapping[str, CallPath]
    """Compiled code that sees the calls of a method first."""

    def serve_call(self, call: GrpcCall) -> None:
        """Serve a call; an error ends it with the status INTERNAL."""

    def end_connection(self, token: int) -> None:
        """Forget the clients of a connection that is closed."""

    def stop(self) -> None:
        """End the calls that wait: the broker stops."""

    def count_clients(self) -> Mapping[str, int]:
        """Return the number of clients that are online, by their language."""


class GrpcServer:
    """The calls of all connections of a reactor."""

    def __init__(
        self,
        reactor: Reactor,
        connection_of: Callable[[int], Connection | None],
        service: GrpcService,
        listeners: list[int],
    ) -> None:
        """Serve gRPC on the connections of these listeners."""
        self.service = service
        self._reactor = reactor
        self._connection_of = connection_of
        self._wire = GrpcWire(reactor.connections)
        self._calls: dict[int, dict[int, GrpcCall]] = {}
        """By the token of the connection, and the stream."""

        self._leaving: set[int] = set()
        """Connections that have got GOAWAY and are open."""

        self._all_left = trio.Event()
        for name, path in service.compiled.items():
            self._wire.register(_NAMES.index(name), path, reactor.natives, reactor.held)
        reactor.serve_http2(self._wire, listeners)

    def after_poll(self) -> None:
        """Serve the calls that have come, for a turn."""
        wire = self._wire
        if not wire.has_events:
            return
        deadline = time.perf_counter() + TURN_S
        while (event := wire.take_event()) is not None:
            self._handle_event(*event)
            if time.perf_counter() > deadline:
                break
        self._flush()
        if wire.has_events:
            self._reactor.wake()

    def _handle_event(
        self,
        kind: int,
        token: int,
        stream: int,
        method: int,
        message: bytes | ReturnedCall,
        metadata: bytes,
    ) -> None:
        call = self._calls.get(token, {}).get(stream)
        if kind == GrpcEvent.ENDED:
            if call is not None:
                self._drop(call)
        elif kind == GrpcEvent.ROOM:
            if call is not None and call.on_room is not None:
                self.run(call, call.on_room)
        elif kind == GrpcEvent.HALF_CLOSED:
            if call is not None and call.on_message is not None:
                self.run(call, call.on_message, None)
        elif call is not None:
            if call.on_message is not None:
                self.run(call, call.on_message, message)
        else:
            connection = self._connection_of(token)
            if connection is None:
                return
            call = GrpcCall(self, connection, stream, _NAMES[method])
            self._calls.setdefault(token, {})[stream] = call
            if not isinstance(message, bytes):
                on_return, arguments = message
                self.run(call, on_return, call, *arguments)
                return
            call.message, call.metadata = message, decode_metadata(metadata)
            self.run(call, self.service.serve_call, call)
            call.message, call.metadata = b"", {}  # a call may be open for long

    def run(
        self, call: GrpcCall, function: Callable[..., None], *arguments: object
    ) -> None:
        """Call a function of the service; an error ends the call."""
        try:
            function(*arguments)
        except Exception as error:  # supervises the service
            logger.error(
                "the call %s of %s failed",
                call.method,
                call.connection.remote_address,
                exc_info=error,
                extra=caused_by(call.connection.remote_address),
            )
            self.finish(call, None, INTERNAL, f"{type(error).__name__}: {error}")

    def send(self, call: GrpcCall, message: bytes) -> bool:
        """Send one of several messages."""
        is_sent = self._wire.reply(call.connection.token, call.stream, message, False)
        self._flush()
        if not is_sent:
            self._drop(call)
        return is_sent

    def finish(
        self, call: GrpcCall, message: bytes | None, status: int, text: str
    ) -> None:
        """End a call with its last message or a status; nothing if it has ended."""
        if not call.is_open:
            return
        token, stream = call.connection.token, call.stream
        self._remove(call)
        if message is None:
            self._wire.end(token, stream, status, text.encode())
        else:
            self._wire.reply(token, stream, message, True)
        self._flush()

    def finish_all(self, call: GrpcCall, messages: list[bytes]) -> bool:
        """End a call with all its messages; False if its stream is gone."""
        self._remove(call)
        is_sent = self._wire.reply_all(call.connection.token, call.stream, messages)
        self._flush()
        return is_sent

    def ask_handler(
        self, call: GrpcCall, user: str, code: int, fields: dict[str, str]
    ) -> bytes | None:
        """Ask the compiled handler of a code."""
        reply = self._wire.ask_handler(call.connection.token, user, code, fields)
        if reply is not None:
            self._reactor.wake()
        return reply

    def wait_for_room(self, call: GrpcCall, on_room: Callable[[], None]) -> bool:
        """Whether too much of an answer waits; then `on_room` is called later."""
        call.on_room = on_room
        token, stream = call.connection.token, call.stream
        return self._wire.late_size(token, stream) > LATE_LIMIT and (
            self._wire.want_room(token, stream)
        )

    def _drop(self, call: GrpcCall) -> None:
        """Remove a call whose stream has ended."""
        if not call.is_open:
            return
        self._remove(call)
        if call.on_end is not None:
            self.run(call, call.on_end)

    def _remove(self, call: GrpcCall) -> None:
        call.is_open = False
        self._calls.get(call.connection.token, {}).pop(call.stream, None)

    def end_connection(self, token: int) -> None:
        """Forget the calls of a connection that is closed."""
        for call in list(self._calls.get(token, {}).values()):
            self._drop(call)
        self._calls.pop(token, None)
        self.service.end_connection(token)
        if token in self._leaving:
            self._leaving.remove(token)
            if not self._leaving:
                self._all_left.set()

    def _flush(self) -> None:
        if self._wire.flush():
            self._reactor.wake()

    async def drain(self, tokens: Collection[int]) -> None:
        """Announce the stop to the clients of these connections, and end the
        connections.

        Receives that wait are answered, and streams of Telemetry end. Clients close
        their connections then. After DRAIN_S the other clients get the last GOAWAY.
        """
        self._leaving = {each for each in tokens if self._wire.go_away(each, False)}
        self.service.stop()
        self._flush()
        if self._leaving:
            with trio.move_on_after(DRAIN_S):
                await self._all_left.wait()
        for token in self._leaving:
            self._wire.go_away(token, True)
        self._flush()

    def _count_kept(self) -> int:
        """Return the number of calls that compiled code holds."""
        return sum(path.count_kept() for path in self.service.compiled.values())

    def statistics(self) -> GrpcStatistics:
        """Return the counters."""
        wire = self._wire
        return GrpcStatistics(
            wire.peers,
            sum(map(len, self._calls.values())) + self._count_kept(),
            wire.frames,
            wire.calls,
            wire.skipped,
            wire.resets,
            wire.refused,
            wire.failures,
            wire.floods,
        )


def decode_metadata(data: bytes) -> dict[str, str]:
    """Return the values of headers by name, from the form of `request_head.pyx`."""
    found = {}
    at = 0
    while at < len(data):
        size = int.from_bytes(data[at + 1 : at + 3])
        value = data[at + 3 : at + 3 + size]
        found[_HEADERS[data[at]]] = value.decode("utf-8", "replace")
        at += 3 + size
    return found
