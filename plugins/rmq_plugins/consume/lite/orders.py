"""LiteOrders: the POPs of lite topics that groups have not acked.

In memory only, as in Java: after a restart groups continue at their committed offsets.
An entry is removed after its last ack. A heap has the times at which queues are not
blocked any more. Known in Java as `MemoryConsumerOrderInfoManager`.
"""

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Final

from rmq_plugins.consume.queue_order import QueueOrder

MAX_ORDERS: Final = 200_000
"""Maximum number of pairs of a lite topic and a group with open messages."""

SLACK: Final = 1_000
"""Maximum number of outdated times in the heap."""

Key = tuple[str, str]
"""Queue and group."""


class LiteOrders:
    """The last POP of each lite topic and group."""

    def __init__(self) -> None:
        self._orders: dict[Key, QueueOrder] = {}
        """The messages in the order of the POPs."""

        self._unblock_ms: dict[Key, int] = {}
        self._times: list[tuple[int, Key]] = []

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._orders)

    @property
    def is_full(self) -> bool:
        """Whether there is no room for another entry."""
        return len(self._orders) >= MAX_ORDERS

    def get(self, queue: str, group: str) -> QueueOrder | None:
        """Return the last POP; None if all of its messages are acked."""
        return self._orders.get((queue, group))

    def put(self, queue: str, group: str, order: QueueOrder) -> None:
        """Set the last POP."""
        self._orders.pop((queue, group), None)
        self._orders[queue, group] = order
        self.refresh_time(queue, group)

    def refresh_time(self, queue: str, group: str) -> None:
        """Compute again the time until which a queue is blocked."""
        key = queue, group
        at_ms = self._orders[key].blocked_until_ms(0)
        self._unblock_ms[key] = at_ms
        heapq.heappush(self._times, (at_ms, key))
        if len(self._times) > 2 * len(self._unblock_ms) + SLACK:
            self._times = [(at_ms, key) for key, at_ms in self._unblock_ms.items()]
            heapq.heapify(self._times)

    def drop(self, queue: str, group: str) -> None:
        """Remove the last POP."""
        self._orders.pop((queue, group), None)
        self._unblock_ms.pop((queue, group), None)

    def shift_times(self, step_ms: int) -> None:
        """Move the times of POPs by the step of a clock that was set, so that they
        block as long as before.
        """
        for order in self._orders.values():
            order.shift_times(step_ms)
        self._unblock_ms = {
            key: at_ms + step_ms for key, at_ms in self._unblock_ms.items()
        }
        self._times = [(at_ms + step_ms, key) for at_ms, key in self._times]

    def drop_before(self, before_ms: int) -> None:
        """Remove the POPs older than a time, if no later POP has replaced them."""
        for key, order in list(islice(self._orders.items(), SLACK)):
            if order.last_ms >= before_ms:
                return
            self.drop(*key)

    @property
    def next_ms(self) -> int | None:
        """The next time at which a queue may not be blocked any more."""
        return self._times[0][0] if self._times else None

    def take_unblocked(self, now_ms: int) -> Iterator[Key]:
        """Yield the queues that are not blocked any more, each once."""
        while self._times and self._times[0][0] <= now_ms:
            at_ms, key = heapq.heappop(self._times)
            if self._unblock_ms.get(key) == at_ms:
                del self._unblock_ms[key]
                yield key
