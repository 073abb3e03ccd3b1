"""LiteQueues: the lite topics that exist, by parent topic.

A lite topic exists while its light message queue is in the store. This index exists so
that a query about one parent topic does not iterate over all queues of the store.
"""

from rmq.plugin import BrokerContext
from rmq.protocol.topics import split_lite_queue


class LiteQueues:
    """Names of queues, and the ends that readers see."""

    def __init__(self, broker: BrokerContext) -> None:
        self._messages = broker.messages
        self._of_parent: dict[str, dict[str, None]] = {}
        for name in broker.queues.topics():
            self.add(name)

    def add(self, name: str) -> None:
        """Add a queue if it is new."""
        parts = split_lite_queue(name)
        if parts is not None:
            self._of_parent.setdefault(parts[0], {})[name] = None

    def drop(self, name: str) -> None:
        """Remove a deleted queue."""
        parts = split_lite_queue(name)
        if parts is None or parts[0] not in self._of_parent:
            return
        self._of_parent[parts[0]].pop(name, None)
        if not self._of_parent[parts[0]]:
            del self._of_parent[parts[0]]

    def parent_topics(self) -> list[str]:
        """Return the parent topics that have lite topics."""
        return list(self._of_parent)

    def queues_of(self, parent: str) -> list[str]:
        """Return the queues of the lite topics of a parent topic."""
        return list(self._of_parent.get(parent, ()))

    def count(self, parent: str) -> int:
        """Return the number of lite topics of a parent topic."""
        return len(self._of_parent.get(parent, ()))

    def end(self, name: str) -> int:
        """Return the offset after the last message; 0 without a queue."""
        return self._messages.max_offset(name, 0)
