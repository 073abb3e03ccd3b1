"""Connection: what a handler may do with its caller.

The bytes belong to the reactor; this object knows the addresses, sends commands and
asks the peer.  It compares by identity, so that tables of clients can use it as a key.
Belongs to the trio thread.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

import trio

from rmq._fastpath import Reactor
from rmq.errors import InvokeTimeout, PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.hosts import host_bytes
from rmq.protocol.peer import Peer, ResponseReceived, Role

if TYPE_CHECKING:
    from rmq.remoting.server import Listener

INVOKE_LIMIT = 1024
"""Requests of ours that may wait on one connection."""


class Connection:
    """One accepted connection."""

    __slots__ = (
        "_close",
        "_peer",
        "_reactor",
        "_waiters",
        "close_reason",
        "is_open",
        "listener",
        "local_address",
        "opened_ms",
        "remote_address",
        "remote_host",
        "token",
    )

    def __init__(
        self,
        reactor: Reactor,
        token: int,
        listener: "Listener",
        *,
        remote: tuple[str, int],
        local: tuple[str, int],
        close: Callable[["Connection", str], None],
    ) -> None:
        self.token = token
        self.listener = listener
        self.remote_address = f"{remote[0]}:{remote[1]}"
        self.remote_host = host_bytes(remote[0], remote[1])
        self.local_address = f"{local[0]}:{local[1]}"
        self.opened_ms = now_ms()
        self.is_open = True
        self.close_reason = ""
        self._reactor = reactor
        self._close = close
        self._peer: Peer | None = None
        self._waiters: dict[int, tuple[trio.Event, list[Command]]] = {}

    def send_nowait(self, command: Command) -> None:
        """Send a response, or a request that needs no answer; nothing if closed."""
        if not command.is_response:
            self._send(self._own_peer().oneway(command))
        else:
            self._send(encode(command))

    def send_frame(self, frame: bytes) -> None:
        """Send an encoded frame, the same to many peers; nothing if closed."""
        self._send(frame)

    async def invoke(self, command: Command, timeout_ms: int) -> Command:
        """Ask the peer and wait for its answer."""
        if not self.is_open:
            raise PeerClosed(f"{self.remote_address} is gone")
        peer = self._own_peer()
        self._send(peer.request(command, now_ms() + timeout_ms))
        event, answer = trio.Event(), []  # type: trio.Event, list[Command]
        self._waiters[command.opaque] = event, answer
        try:
            with trio.move_on_after(timeout_ms / 1000):
                await event.wait()
        finally:
            self._waiters.pop(command.opaque, None)
            peer.expire()
        if answer:
            return answer[0]
        if not self.is_open:
            raise PeerClosed(f"{self.remote_address} closed before it answered")
        raise InvokeTimeout(
            f"{self.remote_address} did not answer request {command.code} "
            f"within {timeout_ms} ms"
        )

    def take_response(self, command: Command) -> None:
        """Give an answer of the peer to whoever waits for it."""
        if self._peer is None:
            return
        for event in self._peer.receive(command):
            if isinstance(event, ResponseReceived):
                waiter = self._waiters.get(event.request.opaque)
                if waiter is not None:
                    waiter[1].append(event.command)
                    waiter[0].set()

    def close(self, reason: str = "closed by the broker") -> None:
        """End the connection; what the socket takes at once is still sent."""
        if self.is_open:
            self._close(self, reason)

    def mark_closed(self, reason: str) -> None:
        """Wake everybody who waits for this peer; the server calls this once."""
        self.is_open = False
        self.close_reason = reason
        for event, _ in self._waiters.values():
            event.set()

    def _send(self, data: bytes) -> None:
        if self.is_open:
            self._reactor.send(self.token, data)

    def _own_peer(self) -> Peer:
        if self._peer is None:
            self._peer = Peer(Role.SERVER, now_ms, max_pending=INVOKE_LIMIT)
        return self._peer

    def __repr__(self) -> str:
        """Name the peer for logs."""
        return f"<Connection {self.remote_address} on {self.listener.name}>"


def now_ms() -> int:
    """Milliseconds of trio's clock: what deadlines and idle times are measured by."""
    return int(trio.current_time() * 1000)
