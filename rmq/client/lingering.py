"""LingeringBatches: messages of a topic gather, and leave together when it is time."""

import math
from collections.abc import Callable

import anyio

from rmq._fastpath.client.messages import Delivery
from rmq._fastpath.client.sending import Accumulator
from rmq.client.core.batches import BatchLimits
from rmq.outgoing.connection import steady_ms


class LingeringBatches:
    """One batch that fills for each topic; `leave` gets those that are to be sent."""

    def __init__(
        self,
        limits: BatchLimits,
        linger_ms: float,
        leave: Callable[[list[Delivery]], None],
    ) -> None:
        self._limits = limits
        self._linger_ms = linger_ms
        self._leave = leave
        self._filling: dict[tuple[str, bool], Accumulator] = {}
        self._wake = anyio.Event()

    def add(self, delivery: Delivery) -> None:
        """Add a message; a batch that is full leaves at once."""
        packed = delivery.packed
        place = packed.topic, packed.wait_stored
        accumulator = self._filling.get(place)
        if accumulator is None:
            accumulator = Accumulator(self._limits, self._linger_ms)
            self._filling[place] = accumulator
        was_empty = accumulator.leaves_at_ms is None
        for batch in accumulator.add(delivery, packed.size, steady_ms):
            self._leave(batch)
        if was_empty:
            self._wake.set()

    def withdraw(self, delivery: Delivery) -> None:
        """Take a message out that was given up, unless it has left."""
        packed = delivery.packed
        accumulator = self._filling[packed.topic, packed.wait_stored]
        accumulator.withdraw(delivery, packed.size)

    def leave_all(self) -> None:
        """Send what is there."""
        for accumulator in self._filling.values():
            if batch := accumulator.take():
                self._leave(batch)

    async def run(self) -> None:
        """Let batches leave when their time has come."""
        while True:
            now_ms = steady_ms()
            next_ms = math.inf
            for place, accumulator in list(self._filling.items()):
                if batch := accumulator.due(now_ms):
                    self._leave(batch)
                if accumulator.leaves_at_ms is not None:
                    next_ms = min(next_ms, accumulator.leaves_at_ms)
                else:
                    del self._filling[place]
            if next_ms < math.inf:
                await anyio.sleep(max(next_ms - now_ms, 0.5) / 1_000)
            else:
                self._wake = anyio.Event()
                await self._wake.wait()
