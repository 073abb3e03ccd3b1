"""Deliveries: messages that wait until the flow-control window of their client has
room.

The parts of an answer leave as the client's window allows. Messages in parts that wait
here were popped already. If the broker cannot send them within WAIT_MS, or the client
disconnects, it gives the messages back, and they become visible again. Limit:
UNSENT_LIMIT bytes of a connection wait here; an answer beyond it gives its messages
back.
"""

from collections import deque
from collections.abc import Callable
from typing import Final

import trio

from rmq.plugin import BrokerContext, GrpcCall

WAIT_MS: Final = 20_000
UNSENT_LIMIT: Final = 4 << 20
CANCELLED: Final = 1
RESOURCE_EXHAUSTED: Final = 8
"""Statuses of gRPC."""

SHORT_SIZE: Final = 256 * 1024
"""Maximum size of an answer that is sent at once."""

Part = tuple[bytes, Callable[[], None] | None]
"""A message of the answer, and how to give back the message in it."""


class Delivery:
    """The rest of one answer; it compares by identity."""

    __slots__ = ("call", "deadline_ms", "on_done", "parts", "size")

    def __init__(
        self, call: GrpcCall, parts: list[Part], on_done: Callable[[], None]
    ) -> None:
        self.call = call
        self.parts = deque(parts)
        self.on_done = on_done
        self.size = 0
        """Bytes of the parts, once they wait."""

        self.deadline_ms = 0


class Deliveries:
    """The answers of all clients that wait for room."""

    def __init__(self, broker: BrokerContext) -> None:
        self._steady_ms = broker.clock.steady_ms
        self._waiting: dict[Delivery, None] = {}
        """The answers that wait; the earliest deadline comes first."""

        self._sizes: dict[int, int] = {}
        """Bytes that wait, by the token of the connection."""

        self._has_waiting = trio.Event()

    def send(
        self, call: GrpcCall, parts: list[Part], on_done: Callable[[], None]
    ) -> None:
        """Send an answer; `on_done` is called when no part of it waits any more."""
        delivery = Delivery(call, parts, on_done)
        if sum(len(data) for data, _ in parts) <= SHORT_SIZE:
            call.on_end = None
            if call.send_all([data for data, _ in parts]):
                delivery.parts.clear()
            self._give_back(delivery)
            return
        call.on_end = lambda: self._give_back(delivery)
        if not self._send_some(delivery):
            return
        delivery.size = sum(len(data) for data, _ in delivery.parts)
        token = call.connection.token
        waiting = self._sizes.get(token, 0)
        if waiting + delivery.size > UNSENT_LIMIT:
            delivery.size = 0
            self._give_back(delivery)
            call.end(RESOURCE_EXHAUSTED, "too many messages wait for the client")
            return
        self._sizes[token] = waiting + delivery.size
        delivery.deadline_ms = self._steady_ms() + WAIT_MS
        self._waiting[delivery] = None
        self._has_waiting.set()

    def _send_some(self, delivery: Delivery) -> bool:
        """Send what the window allows; return whether parts wait."""
        call, parts = delivery.call, delivery.parts
        while parts:
            if call.wait_for_room(lambda: self._send_more(delivery)):
                return True
            data, give_back = parts.popleft()
            if not call.send(data):
                if give_back is not None:
                    give_back()
                return False  # `on_end` gave the other messages back
        call.on_end = None
        self._finish(delivery)
        call.end()
        return False

    def _send_more(self, delivery: Delivery) -> None:
        """Send more parts, because the client has room again."""
        if delivery in self._waiting:
            self._send_some(delivery)

    def _finish(self, delivery: Delivery) -> None:
        self._waiting.pop(delivery, None)
        token = delivery.call.connection.token
        if delivery.size:
            self._sizes[token] -= delivery.size
            if not self._sizes[token]:
                del self._sizes[token]
        delivery.on_done()

    def _give_back(self, delivery: Delivery) -> None:
        """Make the unsent messages visible again."""
        delivery.call.on_end = None
        parts = list(delivery.parts)
        delivery.parts.clear()
        self._finish(delivery)
        for _, give_back in parts:
            if give_back is not None:
                give_back()

    async def run(self) -> None:
        """End the answers that have waited for too long, until cancelled."""
        while True:
            await self._has_waiting.wait()
            now_ms = self._steady_ms()
            first = next(iter(self._waiting), None)
            if first is None:
                self._has_waiting = trio.Event()
            elif first.deadline_ms > now_ms:
                await trio.sleep((first.deadline_ms - now_ms) / 1000)
            else:
                self._give_back(first)
                first.call.end(CANCELLED, "the client does not read its messages")
