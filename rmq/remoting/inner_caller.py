"""InnerCaller: a client of another protocol, as handlers of requests see it.

It calls the handlers of remoting by `Commands.serve`, so a gRPC call has the same rules
as the request of a remoting client. Answers come back by their opaque numbers. Requests
of the broker to its clients go to `on_request`.
"""

from collections.abc import Awaitable, Callable
from typing import Final

from rmq.core.errors import PeerError
from rmq.core.measure import GrowthRate
from rmq.protocol.command import Command
from rmq.remoting.connection import Connection
from rmq.remoting.loop_clock import now_ms

OPAQUE_LIMIT: Final = 1 << 31
RATE_SPAN_MS, RATE_STEP_MS, RATE_LEAST_MS = 10_000, 1_000, 1_500
"""Samples of a rate: their span, their step, and the shortest span with a rate."""


OnAnswer = Callable[[Command], None]
OnInvoke = Callable[[Command, int], Awaitable[Command]]
"""Function that gets a request and its time limit in milliseconds."""


class InnerCaller(Connection):
    """A client of another protocol on an accepted connection."""

    __slots__ = ("_answers", "_opaque", "_received", "_serve", "count_received",
                 "on_invoke", "on_request", "pop_again", "user")  # fmt: skip

    is_inner = True

    def __init__(
        self,
        connection: Connection,
        serve: Callable[["InnerCaller", Command], None],
        close: Callable[[Connection, str], None],
        on_request: Callable[[Command], None],
    ) -> None:
        """`serve` passes a request to its handler; `close` ends this caller."""
        self.token = connection.token
        self.listener_index = connection.listener_index
        self.listener_name = connection.listener_name
        self.peer = connection.peer
        self.remote_address = connection.remote_address
        self.source_host = connection.source_host
        self.remote_host = connection.remote_host
        self.local_address = connection.local_address
        self.opened_ms = connection.opened_ms
        self.is_open = True
        self.close_reason = ""
        self.user = ""
        self.on_request = on_request
        self.on_invoke: OnInvoke | None = None
        self.pop_again: Callable[[], bool] | None = None
        """Set for a POP for which compiled code has found no message. When a message
        has come, this function lets compiled code answer; if it returns False, Python
        has to answer.
        """

        self.count_received: Callable[[], int] = lambda: 0
        """Returns the messages that the client has received so far."""

        self._received: GrowthRate | None = None
        self._calls = None
        self._close = close
        self._serve = serve
        self._answers: dict[int, OnAnswer] = {}
        self._opaque = 0

    def serve_request(self, command: Command, on_answer: OnAnswer) -> None:
        """Pass a request to its handler; `on_answer` gets the answer, perhaps now."""
        self._opaque = command.opaque = (self._opaque + 1) % OPAQUE_LIMIT
        self._answers[command.opaque] = on_answer
        self._serve(self, command)

    def send_nowait(self, command: Command) -> None:
        """Take the answer of a handler, or a request of the broker to its client."""
        if not command.is_response:
            if self.is_open:
                self.on_request(command)
            return
        on_answer = self._answers.pop(command.opaque, None)
        if on_answer is not None:
            on_answer(command)

    def send_frame(self, frame: bytes) -> None:
        """Ignore a notice of the broker, because gRPC clients do not know its form."""

    async def invoke(self, command: Command, timeout_ms: int) -> Command:
        """Pass a request of the broker to the client, and wait for its answer."""
        if self.on_invoke is None:
            raise PeerError(f"{self.remote_address} speaks gRPC and cannot answer this")
        return await self.on_invoke(command, timeout_ms)

    def received_per_s(self) -> float | None:
        """Return the messages per second that the client received since earlier calls
        of this method; None until these calls span RATE_LEAST_MS.
        """
        if self._received is None:
            self._received = GrowthRate(RATE_SPAN_MS, RATE_STEP_MS, RATE_LEAST_MS)
        self._received.sample(now_ms(), self.count_received())
        return self._received.per_second()

    def mark_closed(self, reason: str) -> None:
        """End this caller: no answer is awaited any more."""
        self.is_open = False
        self.close_reason = reason
        self._answers.clear()
