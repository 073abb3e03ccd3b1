"""Ordered POP: the last POP blocks its queue until all its messages are acked.

The group's offset stays at the first message without an ack. After the invisible time
of this message the group pops all messages from there on again.

File `config/consumerOrderInfo.json`, which a Java broker reads too::

        {"orderInfoCount": n, "orderedConsumptionLevel": "QUEUE",
         "table": {"<topic>@<group>": {"<queue>": {
           "a": attempt, "cm": bits of acked, "i": invisible ms, "l": ms of the POP,
           "o": [first, diff, ...], "oc": {offset: times}, "ot": {offset: visible ms},
           "popTime": ms}}}}
"""

from collections.abc import Callable
from typing import Any, Final

from rmq.plugin import BrokerContext, JsonTable, RequestRejected
from rmq_plugins.consume.queue_order import QueueOrder

MAX_QUEUES: Final = 200_000


class Orders(JsonTable):
    """Known in Java as `ConsumerOrderInfoManager`."""

    def __init__(self, broker: BrokerContext) -> None:
        folder = broker.config_folder
        super().__init__(folder / "consumerOrderInfo.json", broker.clock)
        self._orders: dict[str, dict[int, QueueOrder]] = {}
        broker.topics.on_change.append(self._topic_changed)
        broker.clock_steps.callbacks.append(self._clock_set)
        broker.groups.on_change.append(self._group_changed)
        self._groups = broker.groups
        self.on_blocked: Callable[[str, str, int, int], None] = lambda *_: None
        """Called with topic, group, queue and the time until which it is blocked."""

    def _read(self, value: dict[str, Any]) -> None:
        for key, queues in (value.get("table") or {}).items():
            self._orders[str(key)] = {
                int(queue_id): QueueOrder.from_value(order)
                for queue_id, order in queues.items()
            }

    def _content(self) -> dict[str, object]:
        table = {
            key: {str(queue_id): order for queue_id, order in queues.items()}
            for key, queues in self._orders.items()
        }
        return {
            "orderInfoCount": sum(map(len, self._orders.values())),
            "orderedConsumptionLevel": "QUEUE",
            "table": table,
        }

    def _topic_changed(self, name: str, topic: object) -> None:
        if topic is None:
            self._drop(lambda key: key.partition("@")[0] == name)

    def _group_changed(self, name: str) -> None:
        if self._groups.get(name) is None:
            self._drop(lambda key: key.partition("@")[2] == name)

    def _clock_set(self, step_ms: int) -> None:
        for queues in self._orders.values():
            for order in queues.values():
                order.shift_times(step_ms)
            self.touch()

    def _drop(self, matches: Callable[[str], bool]) -> None:
        for key in [key for key in self._orders if matches(key)]:
            del self._orders[key]
            self.touch()

    def _get(self, topic: str, group: str, queue_id: int) -> QueueOrder | None:
        return self._orders.get(f"{topic}@{group}", {}).get(queue_id)

    def blocked_until_ms(
        self,
        topic: str,
        group: str,
        queue_id: int,
        *,
        attempt: str | None,
        invisible_ms: int,
    ) -> int:
        """Return the time until which a queue is blocked; 0 if no POP blocks the
        queue.
        """
        order = self._get(topic, group, queue_id)
        if order is None or (attempt is not None and attempt == order.attempt_id):
            return 0
        return order.blocked_until_ms(invisible_ms)

    def record_pop(
        self,
        key: tuple[str, str, int],
        offsets: list[int],
        *,
        attempt: str | None,
        pop_ms: int,
        invisible_ms: int,
    ) -> dict[int, int]:
        """Record a POP; return for each offset the number of earlier POPs."""
        topic, group, queue_id = key
        order = QueueOrder.from_pop(
            offsets,
            self._get(topic, group, queue_id),
            attempt_id=attempt,
            invisible_ms=invisible_ms,
            last_ms=self._clock.now_ms(),
            pop_ms=pop_ms,
        )
        queues = self._orders.setdefault(f"{topic}@{group}", {})
        if queue_id not in queues and len(self._orders) > MAX_QUEUES:
            raise RequestRejected(
                2, f"groups pop {MAX_QUEUES} queues in order already, the limit"
            )
        queues[queue_id] = order
        self.touch()
        self.on_blocked(topic, group, queue_id, pop_ms + invisible_ms)
        return order.counts

    def ack(
        self, topic: str, group: str, queue_id: int, offset: int, pop_ms: int
    ) -> int:
        """Record an ack; return the group's next offset, NOT_POPPED or ANOTHER_POP."""
        order = self._get(topic, group, queue_id)
        if order is None:
            return offset + 1
        next_offset = order.ack(offset, pop_ms)
        if next_offset >= 0:
            self.touch()
        return next_offset

    def extend(
        self, key: tuple[str, str, int], offset: int, pop_ms: int, until_ms: int
    ) -> None:
        """Hide a popped message until a time."""
        order = self._get(*key)
        if order is not None and order.extend(offset, pop_ms, until_ms):
            self.touch()
            self.on_blocked(*key, until_ms)

    def reset(self, topic: str, group: str, queue_id: int) -> None:
        """Remove the last POP of a queue, because its offset was reset."""
        if self._orders.get(f"{topic}@{group}", {}).pop(queue_id, None) is not None:
            self.touch()
