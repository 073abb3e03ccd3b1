"""Channel: one outgoing connection, with a reader, a bounded outbox and a writer.

The outbox is a bounded memory channel: a peer that does not read slows its callers down
instead of filling memory.  Whoever waits for an answer is woken when the stream ends.
"""

from collections.abc import Awaitable, Callable

import trio

from rmq.errors import InvokeTimeout, PeerClosed, RemoteProtocolError
from rmq.protocol.command import Command
from rmq.protocol.peer import Peer, RequestReceived, ResponseReceived, Role
from rmq.remoting.connection import now_ms

OUTBOX_FRAMES = 1024
RECEIVE_SIZE = 65_536

RequestHandler = Callable[["Channel", Command], Awaitable[Command | None]]


class Channel:
    """Requests over one stream; `run` drives it."""

    def __init__(
        self,
        address: str,
        stream: trio.abc.Stream,
        on_request: RequestHandler | None = None,
    ) -> None:
        self.address = address
        self.is_open = True
        self._stream = stream
        self._on_request = on_request
        self._peer = Peer(Role.CLIENT, now_ms)
        self._waiters: dict[int, tuple[trio.Event, list[Command]]] = {}
        self._outbox, self._sending = trio.open_memory_channel[bytes](OUTBOX_FRAMES)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Read and write until the stream ends or `close` is called."""
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                task_status.started()
                await self._read()
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        except* (RemoteProtocolError, PeerClosed):
            pass
        finally:
            self.is_open = False
            for event, _ in self._waiters.values():
                event.set()
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    async def invoke(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its answer."""
        data = self._peer.request(command, now_ms() + timeout_ms)
        event, answer = trio.Event(), []  # type: trio.Event, list[Command]
        self._waiters[command.opaque] = event, answer
        try:
            with trio.move_on_after(timeout_ms / 1000):
                await self._send(data)
                await event.wait()
        finally:
            self._waiters.pop(command.opaque, None)
            self._peer.expire()
        if answer:
            return answer[0]
        if not self.is_open:
            raise PeerClosed(f"{self.address} closed before it answered")
        raise InvokeTimeout(
            f"{self.address} did not answer request {command.code} "
            f"within {timeout_ms} ms"
        )

    async def oneway(self, command: Command) -> None:
        """Send a request that nobody answers."""
        await self._send(self._peer.oneway(command))

    async def close(self) -> None:
        """End the stream; `run` returns."""
        self.is_open = False
        await trio.aclose_forcefully(self._stream)

    async def _send(self, data: bytes) -> None:
        if not self.is_open:
            raise PeerClosed(f"{self.address} is gone")
        try:
            await self._outbox.send(data)
        except trio.BrokenResourceError:
            raise PeerClosed(f"{self.address} closed before it was asked") from None

    async def _write(self) -> None:
        # Closing this end wakes those who wait for room.
        async with self._sending:
            async for data in self._sending:
                await self._stream.send_all(data)

    async def _read(self) -> None:
        while data := await self._stream.receive_some(RECEIVE_SIZE):
            for event in self._peer.receive(bytes(data)):
                if isinstance(event, ResponseReceived):
                    waiter = self._waiters.get(event.request.opaque)
                    if waiter is not None:
                        waiter[1].append(event.command)
                        waiter[0].set()
                elif isinstance(event, RequestReceived):
                    await self._answer(event.command)

    async def _answer(self, request: Command) -> None:
        if self._on_request is None:
            return
        response = await self._on_request(self, request)
        if response is not None and not request.is_oneway:
            await self._send(self._peer.respond(response))
