"""RawClient sends raw frames; PeerPair connects two peers without a network."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio

from rmq.core.address import Address
from rmq.core.errors import PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.frames import FrameDecoder, encode
from rmq.protocol.peer import Event, Peer, Role
from rmq.testing.clocks import ManualClock

RECEIVE_SIZE = 65_536


class RawClient:
    """One connection on which a test sends any bytes, valid or not.

    It runs one call at a time. `pushed` collects other frames that arrive meanwhile.
    """

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self.pushed: list[Command] = []
        self._decoder = FrameDecoder()
        self._opaque = 0

    @classmethod
    @asynccontextmanager
    async def connect(cls, address: str) -> AsyncIterator["RawClient"]:
        """Connect to "host:port"; closed at the end."""
        async with await trio.open_tcp_stream(*Address.parse(address)) as stream:
            yield cls(stream)

    async def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def call(self, request: Command, timeout_s: float = 5) -> Command:
        """Send a request and wait for its answer."""
        self._opaque += 1
        request.opaque = self._opaque
        await self.send_bytes(encode(request))
        answer = None
        with trio.fail_after(timeout_s):
            while answer is None:
                for command in await self._receive():
                    if command.is_response and command.opaque == request.opaque:
                        answer = command
                    else:
                        self.pushed.append(command)
        return answer

    async def _receive(self) -> list[Command]:
        data = await self.stream.receive_some(RECEIVE_SIZE)
        if not data:
            raise PeerClosed("the server closed the connection")
        return self._decoder.feed(data)


class PeerPair:
    """A client's and a server's `Peer`, connected only by function calls."""

    def __init__(self, clock: ManualClock | None = None) -> None:
        self.clock = clock or ManualClock()
        self.client = Peer(Role.CLIENT, self.clock.now_ms)
        self.server = Peer(Role.SERVER, self.clock.now_ms)

    def to_server(self, frame: bytes) -> list[Event]:
        """Deliver a frame to the server's side."""
        return list(self.server.receive(frame))

    def to_client(self, frame: bytes) -> list[Event]:
        """Deliver a frame to the client's side."""
        return list(self.client.receive(frame))
