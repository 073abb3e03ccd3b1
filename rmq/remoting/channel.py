"""Channel: one outgoing connection, with a reader, a bounded outbox and a writer.

The outbox is a bounded memory channel: a peer that does not read slows its callers down
instead of filling memory. The end of the stream wakes all tasks that wait for answers.
"""

import logging
from collections.abc import Awaitable, Callable

import trio

from rmq.errors import PeerClosed, RemoteProtocolError
from rmq.logs import Foreign, SparseLog, caused_by
from rmq.protocol.command import Command
from rmq.protocol.peer import Role
from rmq.remoting.calls import Calls

logger = logging.getLogger(__name__)
logger.addFilter(SparseLog())

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
        self._calls = Calls(Role.CLIENT, address)
        self._outbox, self._sending = trio.open_memory_channel[bytes](OUTBOX_FRAMES)

    async def run(
        self, *, task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Read and write until the stream ends or `close` is called."""
        reason = "the stream ended"
        try:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._write)
                task_status.started()
                await self._read()
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError, PeerClosed):
            pass
        except* RemoteProtocolError as errors:
            (error, *_) = errors.exceptions
            reason = f"it does not speak the remoting protocol: {Foreign(error)}"
            logger.warning(
                "closing %s: %s", self.address, reason, extra=caused_by(self.address)
            )
        finally:
            self.is_open = False
            self._calls.end(reason)
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(self._stream)

    async def invoke(self, command: Command, timeout_ms: int) -> Command:
        """Send a request and wait for its answer."""
        return await self._calls.invoke(command, timeout_ms, self._send)

    async def oneway(self, command: Command) -> None:
        """Send a request that nobody answers."""
        await self._send(self._calls.peer.oneway(command))

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
        # Closing this end wakes the tasks that wait for room.
        async with self._sending:
            async for data in self._sending:
                await self._stream.send_all(data)

    async def _read(self) -> None:
        while data := await self._stream.receive_some(RECEIVE_SIZE):
            for request in self._calls.receive(bytes(data)):
                await self._answer(request)

    async def _answer(self, request: Command) -> None:
        if self._on_request is None:
            return
        response = await self._on_request(self, request)
        if response is not None and not request.is_oneway:
            await self._send(self._calls.peer.respond(response))
