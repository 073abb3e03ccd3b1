"""Listener: one address of an HTTP server, and a slot for each connection."""

import errno
from collections.abc import Awaitable, Callable
from typing import Final

import trio

from rmq.core.address import Address
from rmq.core.errors import ConfigError
from rmq.http.connection_slots import ConnectionSlots

MAX_CONNECTIONS: Final = 32
"""Maximum number of connections: there are few clients, and a page takes a fraction of
a second.
"""

Handle = Callable[[trio.SocketStream, trio.CancelScope], Awaitable[None]]
"""Serves one connection; the scope ends it if another connection needs its slot."""


class Listener:
    """Binds its address in `open`, accepts connections in `serve`."""

    def __init__(
        self,
        subject: str,
        host: str,
        port: int,
        advice: str,
        *,
        any_port: bool = False,
    ) -> None:
        """`any_port`: use another port if `port` is in use."""
        self.port = port
        self._any_port = any_port
        self.slots = ConnectionSlots(MAX_CONNECTIONS)
        self._subject = subject
        self._host = host
        self._advice = advice
        self._listeners: list[trio.SocketListener] = []

    async def open(self) -> None:
        """Bind the address; ConfigError if it is not free."""
        try:
            self._listeners = await self._bind()
        except OSError as error:
            raise ConfigError(
                f"{self._subject} cannot be served on {Address(self._host, self.port)}"
                f": {error.strerror or error}; {self._advice}"
            ) from error
        self.port = self._listeners[0].socket.getsockname()[1]

    async def _bind(self) -> list[trio.SocketListener]:
        try:
            return await trio.open_tcp_listeners(self.port, host=self._host)
        except OSError as error:
            if not self._any_port or error.errno != errno.EADDRINUSE:
                raise
        return await trio.open_tcp_listeners(0, host=self._host)

    async def serve(self, handle: Handle) -> None:
        """Accept connections until cancelled."""
        assert self._listeners, "open it first"

        async def serve_one(stream: trio.SocketStream) -> None:
            with trio.CancelScope() as scope:
                if not self.slots.acquire(scope):
                    await trio.aclose_forcefully(stream)
                    return
                try:
                    await handle(stream, scope)
                finally:
                    self.slots.release(scope)

        await trio.serve_listeners(serve_one, self._listeners)

    async def close(self) -> None:
        """Release the address."""
        for listener in self._listeners:
            await listener.aclose()
