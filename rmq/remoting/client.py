"""RemotingClient: requests of brokers and name servers to other servers, under trio.

Each request has its own time limit, by trio's clock. If a peer does not read, its
callers wait, and memory does not fill. `run` reads the files of TLS again when they
change. Connections to some addresses stay plain although TLS is configured.
"""

import trio

from rmq.core.errors import InvokeTimeout
from rmq.outgoing.connection import NO_LIMIT_MS, Connection
from rmq.outgoing.connections import CONNECT_TIMEOUT_MS, Connections
from rmq.outgoing.wire import Tls
from rmq.protocol.command import Command
from rmq.remoting.sniffer import Address
from rmq.remoting.tls import TlsConfig, client_context


class RemotingClient:
    """Known in Java as `NettyRemotingClient`."""

    def __init__(
        self,
        *,
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        tls: TlsConfig | None = None,
    ) -> None:
        self.plain_addresses: set[str] = set()
        self._tls = client_context(tls or TlsConfig())
        self._own_ends: set[Address] = set()
        self.connections = Connections(
            connect_timeout_ms=connect_timeout_ms,
            tls_to=self._tls_to,
            on_request=_pass_over,
            on_lost=self._unregister_own,
            on_deadline=_pass_over,
        )

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Read changed files of TLS until cancelled; then close the connections."""
        try:
            task_status.started()
            if self._tls is not None:
                await self._tls.follow()
            await trio.sleep_forever()
        finally:
            await self.connections.close()

    async def invoke(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request; ConnectFailed, InvokeTimeout or PeerClosed if no answer."""
        connection = await self.connections.get(address, self._register_own)
        with trio.move_on_after(timeout_ms / 1_000):
            await connection.wire.wait_drained()
            return await connection.request(command, NO_LIMIT_MS)
        raise InvokeTimeout(
            f"{address} did not answer request {command.code} within {timeout_ms} ms"
        )

    async def oneway(self, address: str, command: Command, timeout_ms: int) -> None:
        """Send a request without an answer."""
        with trio.move_on_after(timeout_ms / 1_000):
            connection = await self.connections.get(address, self._register_own)
            await connection.wire.wait_drained()
            connection.oneway(command)

    def is_own(self, peer: Address) -> bool:
        """Whether an accepted connection was opened by this client."""
        return peer in self._own_ends

    def _tls_to(self, address: str) -> Tls | None:
        if self._tls is None or address in self.plain_addresses:
            return None
        return Tls(self._tls.context, None)

    async def _register_own(self, connection: Connection) -> None:
        self._own_ends.add(connection.wire.local_address)

    def _unregister_own(self, connection: Connection, _: str) -> None:
        self._own_ends.discard(connection.wire.local_address)


def _pass_over(*_: object) -> None:
    """Ignore requests of servers, because none of them needs an answer."""
