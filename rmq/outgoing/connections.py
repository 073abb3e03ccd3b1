"""Connections: one open connection for each address, opened at the first use.

Two callers share one attempt to connect. After a failure the next attempt waits for
0.1 s, doubling to 5 s. Calls fail at once in that time: a dead server costs one timeout
in all, not one timeout per call. Only the loop that used an object first may use it.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from rmq.core.address import Address
from rmq.core.errors import ConnectFailed, copy_error
from rmq.outgoing.connection import Connection
from rmq.outgoing.event_loop import current_wires
from rmq.outgoing.identity import ANY_NAME, handshake_failure, is_tls_error
from rmq.outgoing.wire import Lock, Tls, Wires
from rmq.protocol.command import Command

CONNECT_TIMEOUT_MS: Final = 3_000
FIRST_PAUSE_MS: Final = 100
LONGEST_PAUSE_MS: Final = 5_000
MAX_FAILURES: Final = 1_000
"""Maximum number of addresses whose last failure is remembered."""

Greet = Callable[[Connection], Awaitable[None]]
"""Sends the first request of a new connection; if the request fails, the connection is
closed.
"""


class Connections:
    """The connections of one client; `tls_to` returns the TLS settings of an address,
    None for plain connections.
    """

    def __init__(
        self,
        *,
        connect_timeout_ms: int,
        tls_to: Callable[[str], Tls | None],
        on_request: Callable[[Connection, Command], None],
        on_lost: Callable[[Connection, str], None],
        on_deadline: Callable[[int], None],
        longest_pause_ms: int = LONGEST_PAUSE_MS,
    ) -> None:
        self.open: dict[str, Connection] = {}
        self.sign: Callable[[Command], None] | None = None
        self._connect_timeout_s = connect_timeout_ms / 1_000
        self._tls_to = tls_to
        self._on_request = on_request
        self._on_lost = on_lost
        self._on_deadline = on_deadline
        self._longest_pause_ms = longest_pause_ms
        self._greeting: set[Connection] = set()
        self.locks: dict[str, _AddressLock] = {}
        self._wires: Wires | None = None
        self.failures: dict[str, _Failure] = {}

    def list_all(self) -> list[Connection]:
        """Return the open connections, also connections whose first request is not
        answered yet.
        """
        return [*self.open.values(), *self._greeting]

    async def get(self, address: str, greet: Greet | None = None) -> Connection:
        """Return the open connection to an address; ConnectFailed without one."""
        found = self.open.get(address)
        if found is not None and found.is_open:
            return found
        # Held across the connect: two callers must not open two connections.
        wires = self._wires = self._wires or current_wires()
        lock = self.locks.get(address)
        if lock is None:
            lock = self.locks[address] = _AddressLock(wires.lock())
        lock.users += 1
        try:
            async with lock.lock:
                found = self.open.get(address)
                if found is None or not found.is_open:
                    found = await self._open(wires, address, greet)
        finally:
            lock.users -= 1
            if not lock.users:
                del self.locks[address]
        return found

    async def _open(
        self, wires: Wires, address: str, greet: Greet | None
    ) -> Connection:
        found = await self._connect(wires, address)
        self._greeting.add(found)
        try:
            if greet is not None:
                await greet(found)
            self.open[address] = found
        finally:
            self._greeting.discard(found)
            if self.open.get(address) is not found:
                found.close()
        return found

    async def _connect(self, wires: Wires, address: str) -> Connection:
        known = self.failures.get(address)
        if known is not None and wires.now() < known.until:
            raise copy_error(known.error)
        connection = Connection(
            address,
            wires.waiter,
            self._on_request,
            self._on_wire_lost,
            self._on_deadline,
        )
        tls = self._tls_to(address)
        try:
            wire = await wires.connect(
                Address.parse(address), tls, connection, self._connect_timeout_s
            )
        except (OSError, ValueError) as error:
            if tls is not None and is_tls_error(error):
                found = handshake_failure(address, tls.name or ANY_NAME, error)
            else:
                reason = str(error) or f"no answer in {self._connect_timeout_s:g} s"
                if tls is not None and isinstance(error, ConnectionResetError):
                    reason = "it ends the TLS handshake; it may not offer TLS"
                found = ConnectFailed(f"cannot connect to {address}: {reason}")
            found.__cause__ = error
            count = known.attempts if known is not None else 0
            pause_ms = min(FIRST_PAUSE_MS << min(count, 10), self._longest_pause_ms)
            until = wires.now() + pause_ms * random.uniform(0.8, 1.2) / 1_000
            self._record_failure(address, _Failure(count + 1, until, found), wires)
            raise copy_error(found) from error
        self.failures.pop(address, None)
        connection.wire = wire
        connection.sign = self.sign
        return connection

    def _record_failure(self, address: str, failure: "_Failure", wires: Wires) -> None:
        if len(self.failures) >= MAX_FAILURES:  # addresses come from name servers
            now = wires.now()
            left = {a: f for a, f in self.failures.items() if f.until > now}
            self.failures = left if len(left) < MAX_FAILURES else {}
        self.failures[address] = failure

    def _on_wire_lost(self, connection: Connection, reason: str) -> None:
        if self.open.get(connection.address) is connection:
            del self.open[connection.address]
        self._on_lost(connection, reason)

    async def close(self) -> None:
        """End all connections, and wait until their sockets are closed."""
        connections = list(self.open.values())
        self.open.clear()
        for connection in connections:
            connection.close()
        for connection in connections:
            await connection.wire.wait_closed()


class _Failure(NamedTuple):
    """Failed attempts of an address, and the error of calls that fail at once `until`
    then.
    """

    attempts: int
    until: float
    error: ConnectFailed


class _AddressLock:
    """The lock of an address, and the number of tasks that have it or wait for it."""

    def __init__(self, lock: Lock) -> None:
        self.lock = lock
        self.users = 0
