"""RemotingClient: outgoing calls, one connection per address.

The first call opens a connection, which stays open.  After a failed connect, calls to
the address fail at once for a moment, so that a dead name server costs one time-out and
not one per call.
"""

import trio

from rmq.errors import ConnectFailed
from rmq.protocol.command import Command
from rmq.remoting.channel import Channel
from rmq.remoting.sniffer import Address
from rmq.remoting.tls import TlsConfig, client_context

CONNECT_TIMEOUT_MS = 3_000
BACK_OFF_S = 1.0


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
        self._connect_timeout_s = connect_timeout_ms / 1000
        self._channels: dict[str, Channel] = {}
        self._connecting: dict[str, trio.Lock] = {}
        self._failed_at: dict[str, float] = {}
        self._nursery: trio.Nursery | None = None

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Drive the connections until cancelled."""
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            task_status.started()
            if self._tls is not None:
                await self._tls.follow()
            await trio.sleep_forever()

    async def invoke(self, address: str, command: Command, timeout_ms: int) -> Command:
        """Send a request; ConnectFailed, InvokeTimeout or PeerClosed if no answer."""
        channel = await self._channel(address)
        return await channel.invoke(command, timeout_ms)

    async def oneway(self, address: str, command: Command, timeout_ms: int) -> None:
        """Send a request that nobody answers."""
        with trio.move_on_after(timeout_ms / 1000):
            channel = await self._channel(address)
            await channel.oneway(command)

    def owns(self, peer: Address) -> bool:
        """Whether an accepted connection was opened by this client."""
        return peer in self._own_ends

    async def close(self, address: str) -> None:
        """End the connection to an address, if there is one."""
        channel = self._channels.pop(address, None)
        if channel is not None:
            await channel.close()

    async def _channel(self, address: str) -> Channel:
        channel = self._channels.get(address)
        if channel is not None and channel.is_open:
            return channel
        # Held across the connect: two callers must not open two connections.
        async with self._connecting.setdefault(address, trio.Lock()):
            channel = self._channels.get(address)
            if channel is None or not channel.is_open:
                channel = self._channels[address] = await self._connect(address)
        return channel

    async def _connect(self, address: str) -> Channel:
        assert self._nursery is not None, "run the client first"
        failed_at = self._failed_at.get(address)
        if failed_at is not None and trio.current_time() - failed_at < BACK_OFF_S:
            raise ConnectFailed(f"{address} could not be reached a moment ago")
        host, _, port = address.rpartition(":")
        try:
            with trio.fail_after(self._connect_timeout_s):
                stream = await trio.open_tcp_stream(host.strip("[]"), int(port))
                end: Address = stream.socket.getsockname()[:2]
                secured = await self._secured(address, stream)
        except (OSError, ValueError, trio.TooSlowError) as error:
            self._failed_at[address] = trio.current_time()
            raise ConnectFailed(f"cannot connect to {address}: {error}") from error
        except trio.BrokenResourceError as error:
            self._failed_at[address] = trio.current_time()
            raise ConnectFailed(f"no TLS with {address}: {error.__cause__}") from error
        self._failed_at.pop(address, None)
        channel = Channel(address, secured)
        await self._nursery.start(self._drive, channel, end)
        return channel

    async def _secured(
        self, address: str, stream: trio.SocketStream
    ) -> trio.abc.Stream:
        """Start TLS on a connection, if its address needs it."""
        if self._tls is None or address in self.plain_addresses:
            return stream
        secured = trio.SSLStream(stream, self._tls.context)
        try:
            await secured.do_handshake()
        except (trio.BrokenResourceError, trio.Cancelled):
            await trio.aclose_forcefully(stream)
            raise
        return secured

    async def _drive(
        self,
        channel: Channel,
        end: Address,
        *,
        task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
    ) -> None:
        """Run a channel; `owns` knows its address while it is open."""
        self._own_ends.add(end)
        try:
            await channel.run(task_status=task_status)
        finally:
            self._own_ends.discard(end)
