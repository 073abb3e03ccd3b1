"""LingeringBatches: collects the messages of a topic, and sends them as batches.

Known in Java as `ProduceAccumulator`.
"""

import math
from collections.abc import Callable

import anyio

from rmq._fastpath.client.messages import Delivery
from rmq._fastpath.client.sending import Accumulator
from rmq.client.core.batches import BatchLimits
from rmq.outgoing.connection import steady_ms


class LingeringBatches:
    """The unfinished batch of each topic; `leave` sends a batch."""

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
        """Add a message; a full batch is sent at once."""
        packed = delivery.packed
        key = packed.topic, packed.wait_stored
        accumulator = self._filling.get(key)
        if accumulator is None:
            accumulator = Accumulator(self._limits, self._linger_ms)
            self._filling[key] = accumulator
        was_empty = accumulator.leaves_at_ms is None
        for batch in accumulator.add(delivery, packed.size, steady_ms):
            self._leave(batch)
        if was_empty:
            self._wake.set()

    def withdraw(self, delivery: Delivery) -> None:
        """Remove a cancelled message, unless it was sent."""
        packed = delivery.packed
        accumulator = self._filling[packed.topic, packed.wait_stored]
        accumulator.withdraw(delivery, packed.size)

    def leave_all(self) -> None:
        """Send all batches now."""
        for accumulator in self._filling.values():
            if batch := accumulator.pop():
                self._leave(batch)

    async def run(self) -> None:
        """Send each batch when its time has come."""
        while True:
            now_ms = steady_ms()
            next_ms = math.inf
            for key, accumulator in list(self._filling.items()):
                if batch := accumulator.pop_due(now_ms):
                    self._leave(batch)
                if accumulator.leaves_at_ms is not None:
                    next_ms = min(next_ms, accumulator.leaves_at_ms)
                else:
                    del self._filling[key]
            if next_ms < math.inf:
                await anyio.sleep(max(next_ms - now_ms, 0.5) / 1_000)
            else:
                self._wake = anyio.Event()
                await self._wake.wait()
