"""Connections: one open connection for each address, opened at the first use.

Two callers share one attempt to connect. After a failure the next attempt is made after
0.1 s, doubling to 5 s; until then calls fail at once, so that a dead server costs one
time-out and not one for each call. Belongs to the loop that uses it first.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Final

import anyio

from rmq.errors import ConnectFailed
from rmq.outgoing.connection import Connection
from rmq.outgoing.wire import Tls, current_wires
from rmq.protocol.command import Command

CONNECT_TIMEOUT_MS: Final = 3_000
FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 5_000

Greet = Callable[[Connection], Awaitable[None]]
"""Does what comes first on a new connection; if it fails, nobody uses that one."""


class Connections:
    """See above; `tls_to` says what a connection to an address needs, None if plain."""

    def __init__(
        self,
        *,
        connect_timeout_ms: int,
        tls_to: Callable[[str], Tls | None],
        on_request: Callable[[Connection, Command], None],
        on_lost: Callable[[Connection, str], None],
        on_deadline: Callable[[int], None],
    ) -> None:
        self.open: dict[str, Connection] = {}
        self.sign: Callable[[Command], None] | None = None
        self._connect_timeout_s = connect_timeout_ms / 1_000
        self._tls_to = tls_to
        self._on_request = on_request
        self._on_lost = on_lost
        self._on_deadline = on_deadline
        self._greeted_now: set[Connection] = set()
        self._locks: dict[str, anyio.Lock] = {}
        self._failures: dict[str, tuple[int, float]] = {}

    def all(self) -> list[Connection]:
        """Return those that are open, and those that are being greeted."""
        return [*self.open.values(), *self._greeted_now]

    async def get(self, address: str, greet: Greet | None = None) -> Connection:
        """Return the open connection to an address; ConnectFailed without one."""
        found = self.open.get(address)
        if found is not None and found.is_open:
            return found
        # Held across the connect: two callers must not open two connections.
        async with self._locks.setdefault(address, anyio.Lock()):
            found = self.open.get(address)
            if found is None or not found.is_open:
                found = await self._connect(address)
                self._greeted_now.add(found)
                try:
                    if greet is not None:
                        await greet(found)
                    self.open[address] = found
                finally:
                    self._greeted_now.discard(found)
                    if self.open.get(address) is not found:
                        found.close()
        return found

    async def _connect(self, address: str) -> Connection:
        count, until = self._failures.get(address, (0, 0.0))
        if count and anyio.current_time() < until:
            raise ConnectFailed(f"{address} could not be reached a moment ago")
        host, _, port = address.rpartition(":")
        wires = current_wires()
        connection = Connection(
            address, wires.waiter, self._on_request, self._lost, self._on_deadline
        )
        try:
            with anyio.fail_after(self._connect_timeout_s):
                wire = await wires.connect(
                    host.strip("[]"), int(port), self._tls_to(address), connection
                )
        except (OSError, ValueError) as error:
            pause_ms = min(FIRST_PAUSE_MS << min(count, 10), LONGEST_PAUSE_MS)
            pause_s = pause_ms * random.uniform(0.8, 1.2) / 1_000
            self._failures[address] = count + 1, anyio.current_time() + pause_s
            reason = error or f"no answer in {self._connect_timeout_s:g} s"
            raise ConnectFailed(f"cannot connect to {address}: {reason}") from error
        self._failures.pop(address, None)
        connection.wire = wire
        connection.sign = self.sign
        return connection

    def _lost(self, connection: Connection, reason: str) -> None:
        if self.open.get(connection.address) is connection:
            del self.open[connection.address]
        self._on_lost(connection, reason)

    async def close(self) -> None:
        """End all connections, and wait until their sockets are closed."""
        connections = list(self.open.values())
        self.open.clear()
        for connection in connections:
            connection.close()
        with anyio.CancelScope(shield=True):
            for connection in connections:
                await connection.wire.closed()
