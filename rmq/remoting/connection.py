"""Connection: an accepted connection, as handlers use it.

The bytes belong to the reactor; this object has the addresses, and sends commands and
requests to the peer. Connections compare by identity, so that tables can use them as
keys. Belongs to the trio thread.
"""

from collections.abc import Callable

from rmq._fastpath.reactor.reactor import Reactor
from rmq.core.errors import PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.frames import encode
from rmq.protocol.hosts import host_bytes
from rmq.remoting.calls import Calls
from rmq.remoting.loop_clock import now_ms

INVOKE_LIMIT = 1024
"""Maximum number of requests of this process that wait on one connection."""


class Connection:
    """One accepted connection."""

    __slots__ = (
        "_calls",
        "_close",
        "_reactor",
        "close_reason",
        "is_open",
        "listener_index",
        "listener_name",
        "local_address",
        "opened_ms",
        "peer",
        "remote_address",
        "remote_host",
        "source_host",
        "token",
    )

    is_inner = False
    """True for clients of another protocol, see `InnerCaller`."""

    def __init__(
        self,
        reactor: Reactor,
        token: int,
        listener_index: int,
        listener_name: str,
        *,
        remote: tuple[str, int],
        local: tuple[str, int],
        peer: tuple[str, int] | None = None,
        close: Callable[["Connection", str], None],
    ) -> None:
        self.token = token
        self.listener_index = listener_index
        self.listener_name = listener_name
        self.peer = peer or remote
        """The real peer, also if a PROXY header names another address."""

        self.remote_address = f"{remote[0]}:{remote[1]}"
        self.source_host = remote[0]
        """The host of the client: from the PROXY header if there is one."""

        self.remote_host = host_bytes(remote[0], remote[1])
        self.local_address = f"{local[0]}:{local[1]}"
        self.opened_ms = now_ms()
        self.is_open = True
        self.close_reason = ""
        self._reactor = reactor
        self._close = close
        self._calls: Calls | None = None

    @property
    def peer_host(self) -> str:
        """The address of the peer, without its port."""
        return self.peer[0]

    def send_nowait(self, command: Command) -> None:
        """Send a response, or a request that needs no answer; do nothing if it is
        closed.
        """
        if not command.is_response:
            self._send(self._own_calls().peer.oneway(command))
        else:
            self._send(encode(command))

    def send_frame(self, frame: bytes) -> None:
        """Send an encoded frame, the same one to many peers; do nothing if the
        connection is closed.
        """
        self._send(frame)

    async def invoke(self, command: Command, timeout_ms: int) -> Command:
        """Send a request to the peer and wait for its answer."""
        if not self.is_open:
            raise PeerClosed(f"{self.remote_address} is gone")
        return await self._own_calls().invoke(command, timeout_ms, self._send)

    def take_response(self, command: Command) -> None:
        """Give an answer of the peer to the task that waits for it."""
        if self._calls is not None:
            self._calls.complete_call(command)

    def close(self, reason: str = "closed by the broker") -> None:
        """End the connection; send only the bytes that the socket takes at once."""
        if self.is_open:
            self._close(self, reason)

    def mark_closed(self, reason: str) -> None:
        """Wake all tasks that wait for this peer; the server calls this once."""
        self.is_open = False
        self.close_reason = reason
        if self._calls is not None:
            self._calls.end(reason)

    def _send(self, data: bytes) -> None:
        if self.is_open:
            self._reactor.send(self.token, data)

    def _own_calls(self) -> Calls:
        """Return the table of requests that this process sends to the peer."""
        if self._calls is None:
            self._calls = Calls(self.remote_address, max_pending=INVOKE_LIMIT)
        return self._calls

    def __repr__(self) -> str:
        """Name the peer for logs."""
        return f"<Connection {self.remote_address} on {self.listener_name}>"
