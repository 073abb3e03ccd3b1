"""Calls: requests over an accepted connection, and the tasks that wait for answers.

The reactor decodes the frames of such a connection, so answers arrive as commands. On
connections that this process opens, `ClientCodec` has the bytes and the calls.
A call ends in one of three ways: its answer comes, its time limit passes, or the
connection ends. Belongs to the trio thread.
"""

from collections.abc import Callable

import trio

from rmq.core.errors import InvokeTimeout, PeerClosed
from rmq.protocol.command import Command
from rmq.protocol.peer import Peer, ResponseReceived, Role
from rmq.remoting.loop_clock import now_ms

Send = Callable[[bytes], None]


class _Waiter:
    """A task that waits for an answer; no answer means that the connection ended."""

    __slots__ = ("answer", "ended")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.answer: Command | None = None


class Calls:
    """Known in Java as the `ResponseFuture` table of a channel."""

    def __init__(self, address: str, *, max_pending: int) -> None:
        self.address = address
        self.peer = Peer(Role.SERVER, now_ms, max_pending=max_pending)
        self._waiters: dict[int, _Waiter] = {}
        self._end_reason: str | None = None

    async def invoke(self, command: Command, timeout_ms: int, send: Send) -> Command:
        """Send a request and return its answer; InvokeTimeout or PeerClosed without an
        answer.
        """
        if self._end_reason is not None:
            raise PeerClosed(f"{self.address} is gone: {self._end_reason}")
        data = self.peer.request(command, now_ms() + timeout_ms)
        waiter = self._waiters[command.opaque] = _Waiter()
        try:
            send(data)
            with trio.move_on_after(timeout_ms / 1000):
                await waiter.ended.wait()
        finally:
            self._waiters.pop(command.opaque, None)
            self.peer.expire()
        if waiter.answer is not None:
            return waiter.answer
        if self._end_reason is not None:
            raise PeerClosed(
                f"{self.address} closed before it answered: {self._end_reason}"
            )
        raise InvokeTimeout(
            f"{self.address} did not answer request {command.code} "
            f"within {timeout_ms} ms"
        )

    def complete_call(self, answer: Command) -> None:
        """Pass an answer to the task that waits for it."""
        for event in self.peer.receive(answer):
            if isinstance(event, ResponseReceived):
                waiter = self._waiters.get(event.request.opaque)
                if waiter is not None:
                    waiter.answer = event.command
                    waiter.ended.set()

    def end(self, reason: str) -> None:
        """Wake all waiting tasks: no more answers will come."""
        self._end_reason = reason
        for waiter in self._waiters.values():
            waiter.ended.set()
